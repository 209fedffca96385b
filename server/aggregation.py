"""The new global model from what was recovered: exact sums of integer levels, scaled once, in no order of arrival."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dncfl.common.config import Config
from dncfl.common.field import Symbols
from dncfl.common.message import decode_message
from dncfl.common.quantiser import Quantiser
from dncfl.common.tasks.model import Vector


def aggregate(config: Config, theta: Vector, messages: Mapping[int, Symbols], round: int) -> Vector:
    """θ after a round: a·θ + b·Σ_{m∈W} Q(Δθ_m) by the method's weights; θ itself when W is empty.

    Raises ChecksumError when a message does not prove itself.
    """
    if not messages:
        return theta
    updates = [
        decode_message(symbols, round=round, sender=sender, num_levels=config.levels) for sender, symbols in messages.items()
    ]
    model_weight, update_weight = config.method_traits.weights(len(updates), config.clients)
    total = model_weight * theta.astype(np.float64)
    for bound in sorted({update.bound for update in updates}):
        levels = [update.levels for update in updates if update.bound == bound]
        quantiser = Quantiser(levels=config.levels, bound=bound)
        summed: NDArray[np.int64] = np.sum(
            levels, axis=0, dtype=np.int64
        )  # whole numbers, so that no rounding depends on the order
        total += update_weight * quantiser.dequantise(summed, count=len(levels))
    return total.astype(np.float32)
