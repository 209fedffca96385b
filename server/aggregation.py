"""The new global model from what the PS has got: exact sums of integer levels, scaled once, in no order of arrival."""

from collections.abc import Mapping

import numpy as np

from dncfl.common.compiled import compiled
from dncfl.common.config import Config
from dncfl.common.errors import ChecksumError
from dncfl.common.message import QuantisedUpdate, decode_message
from dncfl.common.payload import Payload
from dncfl.common.quantiser import Quantiser
from dncfl.common.tasks.model import Vector
from dncfl.common.threads import each, in_parts
from dncfl.common.weighted_sum import decode_sum

BLOCK = 2**16
"""Parameters per step, so that their sums stay in the processor's cache."""


@compiled("void(Array(uint8, 1, 'C', readonly=True), uint32[::1])", "void(Array(uint16, 1, 'C', readonly=True), uint32[::1])")
def _add(levels, sums):  # type: ignore[no-untyped-def]  # pragma: no cover
    for x in range(sums.size):
        sums[x] += levels[x]


@compiled("void(uint32[::1], float64, float64, float64, float64[::1])")
def _add_update(sums, step, offset, weight, total):  # type: ignore[no-untyped-def]  # pragma: no cover
    for x in range(sums.size):
        total[x] += weight * (step * sums[x] - offset)


def proves_itself(config: Config, payload: Payload, *, round: int, sender: int) -> bool:
    """Whether a payload is a message of `sender`, or its weighted sum, whichever the method aggregates."""
    try:
        if config.method_traits.relays == "summed":
            decode_sum(payload, round=round, sender=sender)
        else:
            decode_message(payload, round=round, sender=sender, num_levels=config.levels)
    except ChecksumError:
        return False
    return True


def aggregate(config: Config, theta: Vector, payloads: Mapping[int, Payload], round: int) -> Vector:
    """θ after a round, by the method's weights a and b; θ itself when there are no payloads.

    payloads: messages by node, for a·θ + b·Σ_m Q(Δθ_m), or weighted sums by node, for a·θ + b·Σ_m s_m.

    Raises ChecksumError when a payload does not prove itself.
    """
    if not payloads:
        return theta
    add = _add_sums if config.method_traits.relays == "summed" else _add_messages
    return add(config, theta, payloads, round)


def _add_sums(config: Config, theta: Vector, sums: Mapping[int, Payload], round: int) -> Vector:
    """In doubles and in the order of the nodes, so that no rounding depends on the order of arrival."""
    model_weight, sum_weight = config.method_traits.weights(len(sums), config.clients)
    total = np.zeros(theta.size)
    for sender in sorted(sums):
        total += decode_sum(sums[sender], round=round, sender=sender)
    new: Vector = (model_weight * theta.astype(np.float64) + sum_weight * total).astype(np.float32)
    return new


def _add_messages(config: Config, theta: Vector, messages: Mapping[int, Payload], round: int) -> Vector:
    def decode(sender: int) -> QuantisedUpdate:
        return decode_message(messages[sender], round=round, sender=sender, num_levels=config.levels)

    updates = each(decode, messages, theta.size)
    model_weight, update_weight = config.method_traits.weights(len(updates), config.clients)
    levels_by_bound = {update.bound: [u.levels for u in updates if u.bound == update.bound] for update in updates}
    quantisers = {bound: Quantiser(levels=config.levels, bound=bound) for bound in sorted(levels_by_bound)}
    new = np.empty_like(theta)

    def fill(first: int, last: int) -> None:
        for start in range(first, last, BLOCK):
            part = slice(start, min(start + BLOCK, last))
            total = model_weight * theta[part].astype(np.float64)
            sums = np.empty(total.size, dtype=np.uint32)  # whole numbers, so that no rounding depends on the order
            for bound, quantiser in quantisers.items():
                sums[:] = 0
                for levels in levels_by_bound[bound]:
                    _add(levels[part], sums)
                _add_update(sums, quantiser.step, len(levels_by_bound[bound]) * bound, update_weight, total)
            new[part] = total

    in_parts(fill, theta.size)
    return new
