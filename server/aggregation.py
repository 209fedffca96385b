"""The new global model from what the PS has got: exact sums of integer levels, scaled once, in no order of arrival."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import carray, compiled, pointer
from dncfl.common.config import Config
from dncfl.common.errors import ChecksumError
from dncfl.common.message import MessageFormat, decode_message, is_intact
from dncfl.common.payload import Payload
from dncfl.common.quantiser import Quantiser
from dncfl.common.tasks.model import Vector
from dncfl.common.threads import each, in_parts
from dncfl.common.update import QuantisedUpdate, places_of
from dncfl.common.weighted_sum import decode_sum

BLOCK = 2**13
"""Parameters per step, so that their sums stay in the processor's cache."""

Weights = tuple[float, float]
"""a and b."""


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


def proves_itself(config: Config, form: MessageFormat, payload: Payload, *, round: int, sender: int) -> bool:
    """Whether a payload is what the method aggregates: a message of `sender`, of this format, or its weighted sum."""
    if config.method_traits.relays != "summed":
        return is_intact(payload, form, round=round, sender=sender)
    try:
        decode_sum(payload, round=round, sender=sender)
    except ChecksumError:
        return False
    return True


def aggregate(config: Config, form: MessageFormat, theta: Vector, payloads: Mapping[int, Payload], round: int) -> Vector:
    """θ after a round, by the method's weights a and b; θ itself when there are no payloads.

    payloads: messages of this format by node, for a·θ + b·Σ_m Q(Δθ_m), or weighted sums by node, for a·θ + b·Σ_m s_m.

    Raises ChecksumError when a payload does not prove itself.
    """
    if not payloads:
        return theta
    weights = config.method_traits.weights(len(payloads), config.clients)
    if config.method_traits.relays == "summed":
        return _add_sums(weights, theta, payloads, round)
    return _add_messages(weights, form, theta, payloads, round)


def _add_sums(weights: Weights, theta: Vector, sums: Mapping[int, Payload], round: int) -> Vector:
    """In doubles and in the order of the nodes, so that no rounding depends on the order of arrival."""
    model_weight, sum_weight = weights
    total = np.zeros(theta.size)
    for sender in sorted(sums):
        total += decode_sum(sums[sender], round=round, sender=sender)
    new: Vector = (model_weight * theta.astype(np.float64) + sum_weight * total).astype(np.float32)
    return new


def _add_messages(weights: Weights, form: MessageFormat, theta: Vector, messages: Mapping[int, Payload], round: int) -> Vector:
    """On several threads, each of which goes through the parts within its own columns."""

    def decode(sender: int) -> QuantisedUpdate:
        return decode_message(messages[sender], form, round=round, sender=sender)

    updates = each(decode, messages, theta.size)
    addresses = np.array([update.levels.ctypes.data for update in updates], dtype=np.uint64)
    parts = []
    for part, place in enumerate(places_of(form.part_sizes)):
        bounds = np.array([update.parts[part].bound for update in updates])
        parts.append((*place, _grouped(addresses, bounds, form.num_levels)))
    itemsize, new = updates[0].levels.itemsize, np.empty_like(theta)

    def fill(first: int, last: int) -> None:
        for begin, end, (addresses, *groups) in parts:
            if (start := max(begin, first)) < (stop := min(end, last)):
                _average(addresses, itemsize, *groups, *weights, theta, start, stop, new)

    in_parts(fill, theta.size)
    return new


def _grouped(addresses: NDArray[np.uint64], bounds: NDArray[np.float64], num_levels: int) -> tuple[NDArray[Any], ...]:
    """Where levels lie, those with one bound for a part in one group, and each group's end, step and offset, for `_average`."""
    distinct, numbers = np.unique(bounds, return_counts=True)
    steps = np.array([Quantiser(levels=num_levels, bound=bound).step for bound in distinct.tolist()])
    return addresses[np.argsort(bounds)], np.cumsum(numbers), steps, numbers * distinct
