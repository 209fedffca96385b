"""The letter's figures again: our means with their spread as lines, the letter's points as dots."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dncfl.common.storage import writing
from dncfl.launch.reproduce.comparison import Reproduction
from dncfl.launch.reproduce.letter import Curve

COLOURS = {"qfl": "crimson", "dnc": "dodgerblue", "nonanonymous": "yellowgreen", "anonymous": "darkorange"}
NAMES = {"qfl": "QFL (ideal)", "dnc": "DNC", "nonanonymous": "non-anonymous", "anonymous": "anonymous"}
TITLES = {2: "i.i.d. data", 3: "one or five classes per client"}


def draw_figure(folder: Path, figure: int, reproductions: Sequence[Reproduction], what: str) -> list[Path]:
    """Draw one figure as PNG and PDF; `what` says in a few words what was run. Raises StorageError."""
    picture = Figure(figsize=(13, 5.6), layout="constrained")
    picture.suptitle(f"Fig. {figure} of the letter, {TITLES[figure]}: {what}, {_num_runs(reproductions)} of each curve")
    known, anonymous = picture.subplots(1, 2, sharey=True)
    for one in reproductions:
        if one.curve.method == "anonymous":
            _draw_anonymous(anonymous, one)
        else:
            _draw_known(known, one)
    known.set(title="Who came is known: mean and standard deviation over the runs", ylabel="test accuracy (%)", ylim=(0, 100))
    anonymous.set(title="Anonymous: each run thinly, their mean, mean of those that learn")
    for axes in (known, anonymous):
        axes.plot([], [], "o", color="gray", markersize=4, label="dots: the letter")
        axes.set(xlabel="round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, fontsize="small", frameon=False)
    paths = [folder / f"fig{figure}.{kind}" for kind in ("png", "pdf")]
    for path in paths:
        with writing(f"the picture {path}"):
            picture.savefig(path, dpi=110)
    return paths


def _num_runs(reproductions: Sequence[Reproduction]) -> str:
    numbers = [len(one.accuracy) for one in reproductions]
    fewest, most = min(numbers), max(numbers)
    return ("1 run" if most == 1 else f"{most} runs") if fewest == most else f"{fewest} to {most} runs"


def _draw_known(axes: Axes, one: Reproduction) -> None:
    rounds, colour = np.arange(1, one.accuracy.shape[1] + 1), COLOURS[one.curve.method]
    width = 4.5 if one.curve.method == "qfl" else 1.5  # DNC mostly lies right on the ideal
    label = f"{NAMES[one.curve.method]}{_where(one.curve)}"
    axes.plot(rounds, one.mean, _style(one.curve), color=colour, linewidth=width, label=label)
    axes.fill_between(rounds, one.mean - one.deviation, one.mean + one.deviation, color=colour, alpha=0.15, linewidth=0)
    _draw_letter(axes, one.curve, colour)


def _draw_anonymous(axes: Axes, one: Reproduction) -> None:
    curve, rounds = one.curve, np.arange(1, one.accuracy.shape[1] + 1)
    if curve.variant == "updates":
        axes.plot(rounds, one.mean, _style(curve), color="rebeccapurple", label=f"of updates{_where(curve)}")
        return
    colour = COLOURS["anonymous"] if _style(curve) == "-" else "saddlebrown"
    axes.plot(rounds, one.accuracy.T, _style(curve), color=colour, alpha=0.35, linewidth=0.7)
    collapsed = f"{one.collapsed.sum()} of {len(one.collapsed)} runs collapse"
    axes.plot(rounds, one.mean, _style(curve), color=colour, linewidth=2.2, label=f"of models{_where(curve)}; {collapsed}")
    if one.collapsed.any() and (learners := one.mean_of_learners) is not None:
        axes.plot(rounds, learners, ":", color=colour, linewidth=2.2, label=f"mean of those that learn{_where(curve)}")
    _draw_letter(axes, curve, colour)


def _draw_letter(axes: Axes, curve: Curve, colour: str) -> None:
    filled = colour if _style(curve) == "-" else "white"
    axes.plot(range(1, len(curve.accuracy) + 1), curve.accuracy, "o", color=colour, markerfacecolor=filled, markersize=4)


def _style(curve: Curve) -> str:
    """Dashed where the letter's figure has a second curve of the same method dashed."""
    return "--" if curve.snr == 5 or curve.partition == "classes:1" else "-"


def _where(curve: Curve) -> str:
    """What tells the curve from others of its method."""
    if curve.figure == 2:
        return "" if curve.snr is None else f", SNR {curve.snr:g}"
    return ", 1 class" if curve.partition == "classes:1" else ", 5 classes"
