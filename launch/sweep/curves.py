"""Curves over a table: the mean of several runs, and how sure it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import t as student  # quantiles of Student's t; scikit-learn brings it along

from dncfl.common.errors import ConfigError
from dncfl.launch.sweep.runs import Label
from dncfl.launch.sweep.table import label_names

CONFIDENCE = 0.95

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The mean of the runs that share some labels, at the points of a grid."""

    labels: dict[str, Label]
    x: Values
    """(k,) ascending"""
    mean: Values
    """(k,)"""
    half_width: Values
    """(k,) of the confidence band; NaN for a single run"""
    runs: list[tuple[Values, Values]]
    """x and y of each run"""

    @property
    def num_runs(self) -> int:
        """n, the runs that the mean is over."""
        return len(self.runs)


def curves(table: pl.DataFrame, x: str, y: str, by: Sequence[str]) -> Iterator[Curve]:
    """A curve for each combination of these labels, in the order of the table. Raises ConfigError as `on_common_grid`."""
    for _, part in table.group_by(by, maintain_order=True) if by else [((), table)]:
        runs = [
            (run[x].to_numpy().astype(np.float64), run[y].to_numpy().astype(np.float64))
            for run in part.sort("round").partition_by([*label_names(part), "seed", "run"], maintain_order=True)
        ]
        grid, values = on_common_grid(runs)
        mean, half_width = confidence_band(values)
        yield Curve(labels={name: part[name][0] for name in by}, x=grid, mean=mean, half_width=half_width, runs=runs)


def on_common_grid(runs: Sequence[tuple[Values, Values]]) -> tuple[Values, Values]:
    """Some runs at the same points: x (k,), and the runs' values there (n, k).

    The points are those of all runs, from where the last one begins to where the first one ends, so that all n runs have a
    value at each. Between its own points a run keeps its last value: the model stays as it is until a round is done.
    Raises ConfigError where the runs share no x.
    """
    first, last = max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs)
    if first > last:
        raise ConfigError(f"runs of one curve share no x: one begins at {first:g}, where another one is over; see --by")
    points = np.unique(np.concatenate([x for x, _ in runs]))
    grid = points[(points >= first) & (points <= last)]
    return grid, np.stack([y[np.searchsorted(x, grid, side="right") - 1] for x, y in runs])


def confidence_band(values: Values) -> tuple[Values, Values]:
    """Of n runs (n, k): their mean (k,), and the half width (k,) of its 95 % confidence interval.

    It is t·s/√n by Student's t with n - 1 degrees of freedom, at each point by itself; NaN for n = 1.
    """
    n = len(values)
    mean: Values = values.mean(axis=0)
    if n == 1:
        return mean, np.full_like(mean, np.nan)
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, n - 1))
    half_width: Values = quantile * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, half_width
