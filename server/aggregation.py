"""The new global model from what was recovered: exact sums of integer levels, scaled once, in no order of arrival."""

from collections.abc import Mapping

import numpy as np

from dncfl.common.compiled import compiled
from dncfl.common.config import Config
from dncfl.common.message import QuantisedUpdate, decode_message
from dncfl.common.payload import Payload
from dncfl.common.quantiser import Quantiser
from dncfl.common.tasks.model import Vector
from dncfl.common.threads import each, in_parts

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


def aggregate(config: Config, theta: Vector, messages: Mapping[int, Payload], round: int) -> Vector:
    """θ after a round: a·θ + b·Σ_{m∈W} Q(Δθ_m) by the method's weights; θ itself when W is empty.

    Raises ChecksumError when a message does not prove itself.
    """
    if not messages:
        return theta

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
