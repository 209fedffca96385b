"""The curves of the letter's Fig. 2 (i.i.d. data) and Fig. 3 (one or five classes per client), point by point.

`letter.csv` holds the test accuracy in percent after each of 20 rounds, rounded to two decimals, in the order of methods
that the figures give.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from dncfl.common.methods import AnonymousVariant, MethodName

FIGURES = (2, 3)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One curve: what is run, and the letter's accuracy (percent) after each round, () where the letter has no such curve."""

    figure: int
    method: MethodName
    snr: float | None
    """None where links are perfect"""
    partition: str
    variant: AnonymousVariant = "models"
    accuracy: tuple[float, ...] = ()

    @property
    def labels(self) -> dict[str, str | float | int]:
        """What tells this curve from the others."""
        method = self.method if self.variant == "models" else f"{self.method}-{self.variant}"
        snr = {} if self.snr is None else {"snr": self.snr}
        return {"figure": self.figure, "method": method, "partition": self.partition, **snr}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a run that are the curve's own."""
        snr = {} if self.snr is None else {"snr": self.snr}
        return {"method": self.method, "anonymous_variant": self.variant, "partition": self.partition, **snr}


def letter_curves() -> list[Curve]:
    """The 15 curves of the letter."""
    with files("dncfl.launch.reproduce").joinpath("letter.csv").open() as file:
        return [_curve(row) for row in csv.DictReader(file)]


def all_curves() -> list[Curve]:
    """The letter's curves, and beside each of an anonymous sum of models the one of updates."""
    curves = letter_curves()
    of_updates = [
        Curve(figure=curve.figure, method="anonymous", snr=curve.snr, partition=curve.partition, variant="updates")
        for curve in curves
        if curve.method == "anonymous"
    ]
    return curves + of_updates


def _curve(row: dict[str, Any]) -> Curve:
    return Curve(
        figure=int(row["figure"]),
        method=row["method"],
        snr=float(row["snr"]) if row["snr"] else None,
        partition=row["partition"],
        accuracy=tuple(float(value) for name, value in row.items() if name.isdigit()),
    )
