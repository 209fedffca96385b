"""Updates as levels. A quantiser's bound is of the whole update, or each part of it, a tensor of the model, has its own."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dncfl.common.quantiser import BoundRule, Levels, Quantiser, adaptive_bound


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
        for place, bound in self._places():
            values[place] = Quantiser(levels=num_levels, bound=bound).dequantise(self.levels[place])
        return values

    @property
    def ends(self) -> list[int]:
        """Where each part ends."""
        return list(accumulate(part.size for part in self.parts))

    def bound_at(self, place: int) -> float:
        """The bound of the value at a place."""
        return self.parts[bisect_right(self.ends, place)].bound

    def _places(self) -> Iterator[tuple[slice, float]]:
        for (first, last), part in zip(pairwise([0, *self.ends]), self.parts, strict=True):
            yield slice(first, last), part.bound


def part_sizes(bound: BoundRule, tensor_sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the parts that have a bound of their own, of an update of tensors with these sizes."""
    return tuple(tensor_sizes) if bound == "per-tensor" else (sum(tensor_sizes),)


def quantise_update(
    delta: NDArray[np.float32],
    tensor_sizes: Sequence[int],
    bound: BoundRule,
    num_levels: int,
    rng: np.random.Generator,
    num_samples: int,
) -> tuple[QuantisedUpdate, int]:
    """Q(Δθ) of an update (d,) that is finite, by a node with so many samples, and how many values were clipped."""
    parts, levels, num_clipped = [], [], 0
    for first, last in pairwise([0, *accumulate(part_sizes(bound, tensor_sizes))]):
        values = delta[first:last]
        part = Part(last - first, adaptive_bound(values, otherwise=1.0) if isinstance(bound, str) else bound)
        quantised, clipped = Quantiser(levels=num_levels, bound=part.bound).quantise(values, rng)
        parts.append(part)
        levels.append(quantised)
        num_clipped += clipped
    all_levels = levels[0] if len(levels) == 1 else np.concatenate(levels)
    return QuantisedUpdate(levels=all_levels, parts=tuple(parts), num_samples=num_samples), num_clipped
