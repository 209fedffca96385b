"""Curves of a sweep as a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dncfl.common.errors import ConfigError, StorageError
from dncfl.common.storage import writing
from dncfl.launch.sweep.curves import Curve, curves
from dncfl.launch.sweep.folder import PARQUET
from dncfl.launch.sweep.grid import CASE
from dncfl.launch.sweep.runs import Label
from dncfl.launch.sweep.table import FIGURES, PLACE, is_figure, label_names
from dncfl.server.files import METRICS, PICTURE

MOST_CURVES = 30
DASHES = ("-", "--", ":", "-.")
FORMATS = (".png", ".pdf", ".svg")
ENOUGH = 4
"""A band of fewer runs than these reaches far beyond all of them, and tells nothing; they are drawn instead."""

OPACITY = 0.25
"""Of the bands, that of one alone; many lie over each other."""

X_TITLES = {"round": "round", "slots": "air time (slots)", "bytes": "symbols sent (MB)"}


def draw(
    source: Path,
    *,
    x: str = "round",
    y: str = "accuracy",
    by: Sequence[str] | None = None,
    where: Sequence[str] = (),
    each_run: bool = False,
    out: Path | None = None,
) -> Path:
    """Draw curves of a table, or of a sweep's folder; returns where the picture is.

    `by`: the labels, or seed, that each curve has values of its own for, all labels that vary unless given; `where`: texts
    "label=value".
    Raises ConfigError for a column or value that is not there, StorageError where a file cannot be read or written.
    """
    path = source / PARQUET if source.is_dir() else source
    picture = out or path.parent / f"{y}-by-{x}.png"
    if picture.suffix not in FORMATS:
        raise ConfigError(f"--out {picture}: must end with one of {', '.join(FORMATS)}")
    table = _chosen(read_table(path), where)
    if y not in (figures := [name for name in table.columns if is_figure(name)]):
        raise ConfigError(f"--y {y}: must be one of {', '.join(figures)}")
    table = table.filter(pl.col(y).is_not_null())  # data sets differ in how many classes have a recall
    if table.is_empty():
        raise ConfigError(f"--y {y}: none of these runs has it")
    varying = [name for name in label_names(table) if table[name].n_unique() > 1]
    by = varying if by is None else by
    _ensure_labels(table, "--by", [name for name in by if name != "seed"])
    drawn = list(curves(table, x, y, by))
    if len(drawn) > MOST_CURVES:
        raise ConfigError(
            f"{len(drawn)} curves: nobody can read more than {MOST_CURVES}; choose by --by or --where of {', '.join(varying)}"
        )
    figure = _figure(drawn, x, y, [name for name in varying if name not in by], each_run=each_run)
    with writing(f"the picture {picture}"):
        figure.savefig(picture, dpi=130)
    return picture


def read_table(path: Path) -> pl.DataFrame:
    """The table in a .parquet or .csv file. Raises StorageError when it is none of a sweep."""
    if not path.exists():
        if (path.parent / METRICS).exists():
            picture = f", with its picture in {PICTURE}" if (path.parent / PICTURE).exists() else ""
            raise StorageError(f"{path.parent} is the folder of a run{picture}; this draws sweeps")
        raise StorageError(f"there is no table {path}; a sweep has one as soon as a run of it is finished")
    try:
        table = pl.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise StorageError(f"{path} cannot be read as a table: {reason}") from None
    if missing := [name for name in (*PLACE, *FIGURES) if name not in table.columns]:
        raise StorageError(f"{path} is no table of a sweep: it has no column {missing[0]}")
    return table


def _chosen(table: pl.DataFrame, where: Sequence[str]) -> pl.DataFrame:
    """The rows whose labels, or seed, have one of the values that are given for them."""
    allowed: dict[str, list[str]] = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--where {text}: must be LABEL=VALUE")
        allowed.setdefault(name.strip().replace("-", "_"), []).append(value.strip())
    _ensure_labels(table, "--where", [name for name in allowed if name != "seed"])
    chosen = table
    for name, values in allowed.items():
        there = table[name].unique(maintain_order=True).to_list()
        for value in values:
            if not any(_is(label, value) for label in there):
                raise ConfigError(f"--where {name}={value}: no run has it; there are {', '.join(map(_text, there))}")
        chosen = chosen.filter(pl.col(name).is_in([label for label in there if any(_is(label, value) for value in values)]))
    if chosen.is_empty():
        raise ConfigError(f"--where {' and '.join(where)}: no run has all of it")
    return chosen


def _is(label: Label | None, text: str) -> bool:
    """Whether a text on a command line means this label; numbers count by their value."""
    if isinstance(label, (int, float)) and not isinstance(label, bool):
        try:
            return float(text) == label
        except ValueError:
            return False
    return _text(label) == text


def _text(label: Label | None) -> str:
    if isinstance(label, bool):
        return str(label).lower()
    return f"{label:g}" if isinstance(label, float) else str(label)


def _ensure_labels(table: pl.DataFrame, option: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in label_names(table):
            known = ", ".join(label_names(table)) or "none, as the sweep has no axes"
            raise ConfigError(f"{option} {name}: is no label of this table; there are {known}")


def _figure(drawn: Sequence[Curve], x: str, y: str, averaged: Sequence[str], *, each_run: bool) -> Figure:
    outside = len(drawn) > 6
    figure = Figure(figsize=(9.5 if outside else 7.5, 4.8), layout="constrained")
    axes = figure.subplots()
    numbers = {curve.num_runs for curve in drawn}
    banded = not averaged and min(numbers) >= ENOUGH  # other runs than other seeds are no sample of anything
    each_run = each_run or not (averaged or banded)
    opacity = OPACITY / len(drawn) ** 0.5 if banded else 0.0
    for curve, (colour, dash) in zip(drawn, _styles(drawn), strict=True):
        name = _name(curve) + (f" (n={curve.num_runs})" if len(numbers) > 1 else "")
        _draw_curve(axes, curve, name, x, y, colour, dash, opacity, each_run=each_run)
    number = "n" if len(numbers) > 1 else numbers.pop()
    if averaged:
        title = f"mean over seeds and {' and '.join(averaged)}, of {number} runs"
    elif number == 1:
        title = "one run each"
    else:
        title = f"mean of {number} seeds, " + ("with 95 % confidence" if banded else "and each run")
    y_title = _unit(y)[1]
    axes.set(xlabel=X_TITLES[x], ylabel=y_title)
    axes.set_title(title, fontsize="medium")
    axes.xaxis.set_major_locator(MaxNLocator(integer=x != "bytes"))
    axes.margins(x=0.02)
    if y_title.endswith("(%)"):  # a band of few runs may reach beyond what there is
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, 0), min(top, 100))
    axes.grid(alpha=0.3)
    if outside:
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    else:
        axes.legend(loc="best", fontsize="small")
    return figure


def _draw_curve(
    axes: Axes, curve: Curve, name: str, x: str, y: str, colour: object, dash: str, opacity: float, *, each_run: bool
) -> None:
    x_scale, y_scale = _unit(x)[0], _unit(y)[0]
    look: dict[str, Any] = {"color": colour, "linestyle": dash, "drawstyle": "default" if x == "round" else "steps-post"}
    points, mean, half_width = x_scale * curve.x, y_scale * curve.mean, y_scale * curve.half_width
    axes.plot(points, mean, **look, label=name, marker="o" if points.size == 1 else None)
    if opacity:
        step: Literal["post"] | None = None if x == "round" else "post"
        axes.fill_between(points, mean - half_width, mean + half_width, step=step, color=colour, alpha=opacity, linewidth=0)
    if each_run and curve.num_runs > 1:
        for run_x, run_y in curve.runs:
            axes.plot(x_scale * run_x, y_scale * run_y, **look, linewidth=0.6, alpha=0.5)


def _unit(column: str) -> tuple[float, str]:
    """What a column is multiplied by, and what it is called then."""
    if column == "accuracy" or "recall" in column:
        return 100, f"{'test accuracy' if column == 'accuracy' else column.replace('_', ' ')} (%)"
    return 1e-6 if column == "bytes" else 1, X_TITLES.get(column, column.replace("_", " "))


def _name(curve: Curve) -> str:
    given = ((label, _text(value)) for label, value in curve.labels.items() if value is not None)
    labels = ", ".join(value if label == CASE else f"{label} {value}" for label, value in given)
    return labels or "all runs"


def _styles(drawn: Sequence[Curve]) -> Iterator[tuple[object, str]]:
    """A colour and a dash for each curve: the dashes tell one label, that with the fewest values, the colours all others."""
    values = {name: list(dict.fromkeys(curve.labels[name] for curve in drawn)) for name in drawn[0].labels}
    dashed = min(values, key=lambda name: len(values[name])) if len(values) > 1 else None
    if dashed is not None and len(values[dashed]) > len(DASHES):
        dashed = None
    others = [tuple(value for name, value in curve.labels.items() if name != dashed) for curve in drawn]
    kinds = list(dict.fromkeys(others))
    colours = matplotlib.colormaps["tab10"].colors if len(kinds) <= 10 else _spread(len(kinds))  # type: ignore[attr-defined]
    for curve, other in zip(drawn, others, strict=True):
        dash = "-" if dashed is None else DASHES[values[dashed].index(curve.labels[dashed])]
        yield colours[kinds.index(other)], dash


def _spread(number: int) -> list[object]:
    """So many colours from one end of the rainbow to the other."""
    return [matplotlib.colormaps["turbo"](i / (number - 1)) for i in range(number)]
