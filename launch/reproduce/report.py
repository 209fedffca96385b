"""What `dncfl reproduce` leaves: the figures, and their numbers as tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl

from dncfl.common.storage import writing
from dncfl.launch.reproduce.comparison import Reproduction, distances
from dncfl.launch.reproduce.letter import Curve
from dncfl.launch.reproduce.picture import draw_figure

CURVES, DISTANCES = "curves.csv", "distances.csv"

COLUMNS = {
    "figure": ("fig", 3, "d"),
    "method": ("method", 17, "s"),
    "snr": ("SNR", 3, "g"),
    "partition": ("partition", 9, "s"),
    "seeds": ("runs", 4, "d"),
    "final": ("final", 6, ".2f"),
    "deviation": ("±", 5, ".2f"),
    "letter": ("letter", 6, ".2f"),
    "rms": ("RMS", 5, ".2f"),
    "rms_to_qfl": ("to QFL", 6, ".2f"),
    "collapsed": ("collapsed", 9, ".0%"),
    "rms_learners": ("learners", 8, ".2f"),
    "rms_collapsed": ("RMS collapsed", 13, ".2f"),
}

LEGEND = """\
final, letter: test accuracy (%) after the last round, ours as a mean of the runs with its standard deviation ±
RMS: distance of the mean from the letter's curve over all rounds, in points; to QFL: from our own QFL
collapsed: runs that end with one answer for all images; learners, RMS collapsed: distance of the other runs, and of these"""


def reproductions(curves: Sequence[Curve], table: pl.DataFrame) -> list[Reproduction]:
    """Our runs of each curve in the table of a sweep; curves without a run are left out."""
    found = []
    for curve in curves:
        if not curve.labels.keys() <= set(table.columns):
            continue  # no run that has this label succeeded
        is_curve = pl.all_horizontal(pl.col(name) == value for name, value in curve.labels.items())
        mine = table.filter(is_curve).sort("seed", "round")
        if not mine.is_empty():
            found.append(Reproduction(curve, 100 * mine["accuracy"].to_numpy().reshape(mine["seed"].n_unique(), -1)))
    return found


def write_report(folder: Path, found: Sequence[Reproduction], what: str) -> tuple[list[dict[str, Any]], list[Path]]:
    """Write figures and tables; returns the table of distances, and the files. Raises StorageError."""
    rows = distances(found)
    files = []
    for figure in sorted({one.curve.figure for one in found}):
        files += draw_figure(folder, figure, [one for one in found if one.curve.figure == figure], what)
    with writing(f"the tables in {folder}"):
        for name, content in ((DISTANCES, rows), (CURVES, _points(found))):
            pl.DataFrame(content, infer_schema_length=None).write_csv(folder / name)
            files.append(folder / name)
    return rows, files


def print_distances(rows: Sequence[Mapping[str, Any]]) -> None:
    """The table of distances on stdout: accuracies in percent, distances in points over all rounds."""
    click.echo("  ".join(f"{title:>{width}}" for title, width, _ in COLUMNS.values()))
    for row in rows:
        cells = ((row[name], width, form) for name, (_, width, form) in COLUMNS.items())
        click.echo("  ".join(f"{'-' if value is None else format(value, form):>{width}}" for value, width, form in cells))
    click.echo(LEGEND)


def _points(found: Sequence[Reproduction]) -> list[dict[str, Any]]:
    """A row per curve and round."""
    return [
        {
            **one.curve.labels,
            "snr": one.curve.snr,
            "round": round,
            "mean": mean,
            "deviation": deviation,
            "letter": one.curve.accuracy[round - 1] if one.curve.accuracy else None,
        }
        for one in found
        for round, (mean, deviation) in enumerate(zip(one.mean, one.deviation, strict=True), start=1)
    ]
