"""Updates as levels: each part of an update, the whole of it or a tensor of the model, with a quantiser's bound of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dncfl.common.config import Bound
from dncfl.common.quantiser import Levels, Quantiser, adaptive_bound


class Part(NamedTuple):
    """Consecutive values with a bound in common: how many they are, and the bound."""

    size: int
    bound: float


@dataclass(frozen=True, kw_only=True)
class QuantisedUpdate:
    """What one node says in one round: its update as levels (d,), and what is needed to read them."""

    levels: Levels
    parts: tuple[Part, ...]
    """the parts of the levels, d in all"""
    num_samples: int

    def values(self, num_levels: int) -> NDArray[np.float64]:
        """Q(Δθ), (d,)."""
        values = np.empty(self.levels.size)
        for (first, last), part in zip(places_of([part.size for part in self.parts]), self.parts, strict=True):
            values[first:last] = Quantiser(levels=num_levels, bound=part.bound).dequantise(self.levels[first:last])
        return values


def places_of(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where consecutive parts of these sizes begin and end."""
    return list(pairwise([0, *accumulate(sizes)]))


def part_sizes(rule: Bound, tensor_sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the parts that have a bound of their own, in an update of tensors with these sizes."""
    return tuple(tensor_sizes) if rule == "per-tensor" else (sum(tensor_sizes),)


def quantise_update(
    delta: NDArray[np.float32],
    *,
    sizes: Sequence[int],
    rule: Bound,
    num_levels: int,
    num_samples: int,
    rng: np.random.Generator,
) -> tuple[QuantisedUpdate, int]:
    """Q(Δθ) of an update (d,) that is finite, in parts of these sizes, and how many values were clipped.

    A rule in words makes the largest magnitude in each part its bound. num_samples: the node's.
    """
    parts, levels, num_clipped = [], [], 0
    for first, last in places_of(sizes):
        values = delta[first:last]
        part = Part(last - first, adaptive_bound(values, otherwise=1.0) if isinstance(rule, str) else rule)
        quantised, clipped = Quantiser(levels=num_levels, bound=part.bound).quantise(values, rng)
        parts.append(part)
        levels.append(quantised)
        num_clipped += clipped
    all_levels = levels[0] if len(levels) == 1 else np.concatenate(levels)
    return QuantisedUpdate(levels=all_levels, parts=tuple(parts), num_samples=num_samples), num_clipped
