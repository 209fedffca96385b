"""Our runs of a curve in figures, beside the letter's points."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dncfl.launch.reproduce.letter import Curve

COLLAPSED = 20.0
"""Test accuracy (percent) after the last round below which a run has collapsed: one of ten classes gives about 10."""


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A curve and our runs of it: `accuracy` (seeds × rounds), in percent."""

    curve: Curve
    accuracy: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over all runs, by round."""
        return np.asarray(self.accuracy.mean(axis=0))

    @property
    def deviation(self) -> NDArray[np.float64]:
        """Standard deviation over the runs, by round; zero for a single run."""
        return self.accuracy.std(axis=0, ddof=1) if len(self.accuracy) > 1 else np.zeros(self.accuracy.shape[1])

    @cached_property
    def collapsed(self) -> NDArray[np.bool_]:
        """Which runs end below COLLAPSED."""
        return np.asarray(self.accuracy[:, -1] < COLLAPSED)

    @property
    def mean_of_learners(self) -> NDArray[np.float64] | None:
        """Mean over the runs that have not collapsed; None where all have."""
        return None if self.collapsed.all() else self.accuracy[~self.collapsed].mean(axis=0)

    @property
    def mean_of_collapsed(self) -> NDArray[np.float64] | None:
        """Mean over the runs that have collapsed; None where none has."""
        return self.accuracy[self.collapsed].mean(axis=0) if self.collapsed.any() else None


def distance(ours: NDArray[np.float64] | None, theirs: Sequence[float]) -> float | None:
    """The root of the mean squared difference (points of accuracy) over the rounds that both have; None without either."""
    if ours is None or not theirs:
        return None
    rounds = min(len(ours), len(theirs))
    return float(np.sqrt(np.mean((ours[:rounds] - np.array(theirs[:rounds])) ** 2)))


def distances(reproductions: Sequence[Reproduction]) -> list[dict[str, object]]:
    """A row per curve: where it ends, and how far it is from the letter's and from our own ideal (QFL) curve.

    `rms` is the distance of the mean over all runs; where runs collapse, `rms_learners` and `rms_collapsed` are those of the
    two kinds apart.
    """
    ideal = {(one.curve.figure, one.curve.partition): one.mean for one in reproductions if one.curve.method == "qfl"}
    rows = []
    for one in reproductions:
        curve, split = one.curve, bool(one.collapsed.any())
        ours = ideal.get((curve.figure, curve.partition))
        rows.append(
            {
                **curve.labels,
                "snr": curve.snr,
                "seeds": len(one.accuracy),
                "rounds": one.accuracy.shape[1],
                "final": float(one.mean[-1]),
                "deviation": float(one.deviation[-1]),
                "letter": curve.accuracy[one.accuracy.shape[1] - 1] if curve.accuracy else None,
                "rms": distance(one.mean, curve.accuracy),
                "collapsed": float(one.collapsed.mean()),
                "rms_learners": distance(one.mean_of_learners, curve.accuracy) if split else None,
                "rms_collapsed": distance(one.mean_of_collapsed, curve.accuracy) if split else None,
                "rms_to_qfl": None if ours is None else distance(one.mean, ours.tolist()),
            }
        )
    return rows
