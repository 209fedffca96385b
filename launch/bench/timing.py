"""Fair times: candidates take turns, and medians are compared as ratios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the benchmark."""

    name: str
    value: float | None
    """None where it could not be measured; `note` says why"""
    unit: str
    """`x` for ratios of medians"""
    goal: float | None = None
    at_least: bool = True
    """whether the value should be at least the goal, or at most"""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none, or no value."""
        if self.goal is None or self.value is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


TURN = 0.01
"""Seconds of a turn at least, in which a short call finds again in the cache what others have driven out."""


def take_turns(candidates: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The median seconds of a call of each candidate: in turns for about `seconds` in all, at least five turns.

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
            turn_ends = perf_counter() + TURN
            while True:
                started = perf_counter()
                run()
                ended = perf_counter()
                times[name].append(ended - started)
                if ended > turn_ends:
                    break
    return {name: median(taken) for name, taken in times.items()}
