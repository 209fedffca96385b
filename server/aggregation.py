"""The new global model from what the PS has got: exact sums of integer levels, scaled once, in no order of arrival."""

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

import numpy as np

from dncfl.common.compiled import carray, compiled, pointer
from dncfl.common.config import Config
from dncfl.common.errors import ChecksumError
from dncfl.common.message import decode_message, is_intact
from dncfl.common.payload import Payload
from dncfl.common.quantiser import Quantiser
from dncfl.common.tasks.model import Vector
from dncfl.common.threads import each, in_parts
from dncfl.common.update import QuantisedUpdate
from dncfl.common.weighted_sum import decode_sum

BLOCK = 2**13
"""Parameters per step, so that their sums stay in the processor's cache."""


@compiled(
    "void(uint64[::1], int64, int64[::1], float64[::1], float64[::1], float64, float64,"
    " Array(float32, 1, 'C', readonly=True), int64, int64, float32[::1])"
)
def _average(  # type: ignore[no-untyped-def]  # pragma: no cover
    addresses, itemsize, ends, steps, offsets, model_weight, update_weight, theta, first, last, new
):
    """Parameters first..last of a·θ + b·Σ Q(Δθ_m). Levels lie at addresses; those up to each end have a bound in common.

    Levels are added up as whole numbers, so that no rounding depends on their order.
    """
    sums = np.empty(BLOCK, np.uint32)
    total = np.empty(BLOCK, np.float64)
    for start in range(first, last, BLOCK):
        width = min(BLOCK, last - start)
        for x in range(width):
            total[x] = model_weight * theta[start + x]
        begin = 0
        for group in range(ends.size):
            sums[:] = 0
            for i in range(begin, ends[group]):
                if itemsize == 1:
                    levels = carray(pointer(addresses[i] + np.uint64(start)), (width,), np.uint8)
                    for x in range(width):
                        sums[x] += levels[x]
                else:
                    words = carray(pointer(addresses[i] + np.uint64(2 * start)), (width,), np.uint16)
                    for x in range(width):
                        sums[x] += words[x]
            for x in range(width):
                total[x] += update_weight * (steps[group] * sums[x] - offsets[group])
            begin = ends[group]
        for x in range(width):
            new[start + x] = total[x]


def proves_itself(config: Config, payload: Payload, *, round: int, sender: int, num_values: int) -> bool:
    """Whether a payload is what the method aggregates, a message of `sender` of num_values values, or its weighted sum."""
    if config.method_traits.relays != "summed":
        return is_intact(payload, round=round, sender=sender, num_levels=config.levels, num_values=num_values)
    try:
        decode_sum(payload, round=round, sender=sender)
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
        return decode_message(messages[sender], round=round, sender=sender, num_levels=config.levels, num_values=theta.size)

    updates = each(decode, messages, theta.size)
    new = np.empty_like(theta)
    for first, last in pairwise(sorted({0}.union(*(update.ends for update in updates)))):
        _average_part(config, theta, updates, first, last, new)
    return new


def _average_part(
    config: Config, theta: Vector, updates: Sequence[QuantisedUpdate], first: int, last: int, new: Vector
) -> None:
    """Fill in parameters first..last, in which each update has one bound."""

    def bound(update: QuantisedUpdate) -> float:
        return update.bound_at(first)

    updates = sorted(updates, key=bound)
    model_weight, update_weight = config.method_traits.weights(len(updates), config.clients)
    groups = [(Quantiser(levels=config.levels, bound=same), len(list(group))) for same, group in groupby(updates, bound)]
    steps = np.array([quantiser.step for quantiser, _ in groups])
    offsets = np.array([number * quantiser.bound for quantiser, number in groups])
    ends = np.cumsum([number for _, number in groups])
    addresses = np.array([update.levels.ctypes.data for update in updates], dtype=np.uint64)
    itemsize = updates[0].levels.itemsize

    def fill(begin: int, end: int) -> None:
        place = first + begin, first + end
        _average(addresses, itemsize, ends, steps, offsets, model_weight, update_weight, theta, *place, new)

    in_parts(fill, last - first)
