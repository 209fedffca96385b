"""The stochastic quantiser Q (eq. SQ of the letter, with its probabilities put right): unbiased, uniform, L levels.

The knots lie κ = 2B/(L-1) apart on [-B, B]. A value x between two knots goes up with probability (x - ⌊x⌋)/κ and down
with the rest, so that E[Q(x)] = x. Values outside [-B, B] are clipped, which is not unbiased; they are counted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Levels = NDArray[np.uint16]
"""Quantised values as knot numbers 0..L-1."""


@dataclass(frozen=True, kw_only=True)
class Quantiser:
    """The quantiser with `levels` (L) knots on [-bound, bound]."""

    levels: int
    bound: float

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise ValueError(f"levels = {self.levels}: must be at least 2")
        if not 0 < self.bound < np.inf:
            raise ValueError(f"bound = {self.bound}: must be positive and finite")

    @property
    def step(self) -> float:
        """The distance between two knots, κ = 2B/(L-1)."""
        return 2 * self.bound / (self.levels - 1)

    def quantise(self, values: NDArray[np.float32], rng: np.random.Generator) -> tuple[Levels, int]:
        """The levels of finite values (d,), and how many values were clipped."""
        clipped = int(np.count_nonzero(np.abs(values) > self.bound))
        positions = values.astype(np.float64)
        positions += self.bound
        positions /= self.step
        positions += rng.random(positions.shape)
        np.floor(positions, out=positions)
        np.clip(positions, 0, self.levels - 1, out=positions)
        return positions.astype(np.uint16), clipped

    def dequantise(self, levels: NDArray[np.integer], count: int = 1) -> NDArray[np.float64]:
        """The values of the knots, κ·levels - B; of a sum over `count` updates' levels, the sum of their values."""
        return np.asarray(self.step * levels - count * self.bound, dtype=np.float64)


def adaptive_bound(values: NDArray[np.float32], otherwise: float) -> float:
    """The largest magnitude in values, so that nothing is clipped; `otherwise` when all are zero."""
    return float(np.max(np.abs(values), initial=0)) or otherwise
