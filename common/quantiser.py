"""The stochastic quantiser Q (eq. SQ of the letter, with its probabilities put right): unbiased, uniform, L levels.

The knots lie κ = 2B/(L-1) apart on [-B, B]. A value x between two knots goes up with probability (x - ⌊x⌋)/κ and down
with the rest, so that E[Q(x)] = x. Values outside [-B, B] are clipped, which is not unbiased; they are counted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import compiled

Levels = NDArray[np.uint8 | np.uint16]
"""Quantised values as knot numbers 0..L-1: bytes where L <= 256."""

# Noise is the middle of one of 2^16 equal parts of 0..1, so a mean may err by 2^-17 of a step, as much as the rounding of
# a value near B to float32 does. The random generator is what takes time here, and 16 bits of it are a quarter of a double.

BLOCK = 2**14
"""Values per step, so that their noise stays in the processor's cache."""


def level_type(num_levels: int) -> type[np.uint8] | type[np.uint16]:
    """The type that holds levels below num_levels."""
    return np.uint8 if num_levels <= 256 else np.uint16


@compiled(
    "int64(Array(float32, 1, 'C', readonly=True), uint16[::1], float64, float64, float64, uint8[::1])",
    "int64(Array(float32, 1, 'C', readonly=True), uint16[::1], float64, float64, float64, uint16[::1])",
)
def _quantise(values, noise, bound, step, highest, levels):  # type: ignore[no-untyped-def]  # pragma: no cover
    for x in range(values.size):
        level = np.floor((values[x] + bound) / step + (noise[x] + 0.5) * 2.0**-16)
        levels[x] = np.int32(min(max(level, 0.0), highest))  # there are vector instructions from doubles to 32 bits only
    clipped = 0
    for x in range(values.size):
        clipped += abs(values[x]) > bound
    return clipped


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
        levels = np.empty(values.size, dtype=level_type(self.levels))
        clipped = 0
        for first in range(0, values.size, BLOCK):
            part = slice(first, first + BLOCK)
            noise = rng.bit_generator.random_raw(-(-values[part].size // 4)).astype("<u8", copy=False).view("<u2")
            clipped += _quantise(values[part], noise, self.bound, self.step, self.levels - 1, levels[part])
        return levels, clipped

    def dequantise(self, levels: NDArray[np.integer]) -> NDArray[np.float64]:
        """The values of the knots, κ·levels - B."""
        return np.asarray(self.step * levels - self.bound, dtype=np.float64)


def adaptive_bound(values: NDArray[np.float32], otherwise: float) -> float:
    """The largest magnitude in values, so that nothing is clipped; `otherwise` when all are zero."""
    return float(np.max(np.abs(values), initial=0)) or otherwise
