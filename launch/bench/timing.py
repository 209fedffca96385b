"""Fair times: candidates take turns, and medians are compared as ratios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the benchmark: what was measured, the seconds of ours and of the other, and how they should relate."""

    name: str
    ours: float
    """median seconds"""
    other: float
    """median seconds of what ours is compared with"""
    goal: float | None = None
    """the ratio to reach: at least this where `faster`, at most this otherwise"""
    faster: bool = True
    """whether the ratio tells how many times faster ours is, or how many times longer it takes"""

    @property
    def ratio(self) -> float:
        """other/ours where ours should be faster, else ours/other."""
        return self.other / self.ours if self.faster else self.ours / self.other

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.faster else self.ratio <= self.goal


def take_turns(candidates: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The median seconds of each candidate, called in turns for about `seconds` in all and at least five times each.

    One call of each before that is not counted: it compiles, imports and touches memory for the first time.
    """
    for run in candidates.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    ends = perf_counter() + seconds
    turns = 0
    while turns < 5 or perf_counter() < ends:
        turns += 1
        for name, run in candidates.items():
            started = perf_counter()
            run()
            times[name].append(perf_counter() - started)
    return {name: median(taken) for name, taken in times.items()}
