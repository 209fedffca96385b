"""Fair times: candidates take turns, and medians are compared as ratios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True)
class Figure:
    """One line of the benchmark, with what it should be."""

    name: str
    value: float | None
    """None where it could not be measured; `note` says why"""
    unit: str
    """`x` for ratios of medians: how many times as long the other takes; `x time`: how many times as long ours takes"""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value is as it should be; None where nothing is demanded, or nothing was measured."""
        if self.value is None or (self.at_least is None and self.at_most is None):
            return None
        return (self.at_least is None or self.value >= self.at_least) and (self.at_most is None or self.value <= self.at_most)


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
