"""The figures as a picture: the outage over P_e, |W|, and the relay slots."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from dncfl.launch.outage.network import Floats, MethodName
from dncfl.launch.outage.report import UNHEARD, describe, fitted_slope
from dncfl.launch.outage.study import Point

STYLES: dict[MethodName, tuple[str, str]] = {
    "exact": ("o", "black"),
    "Monte Carlo": ("s", "tab:orange"),
    "rare-event sampling": ("D", "tab:blue"),
}

LINES = 6
"""Most points of a sweep whose distributions are drawn, and whose outages are named on the axis."""


def draw(path: Path, points: Sequence[Point]) -> None:
    """Draw figures to a file. Raises OSError."""
    network = points[0].network
    figure = Figure(figsize=(14, 4.6), layout="constrained")
    figure.suptitle(f"{describe(network)}, one attempt")
    outage, recovered, relays = figure.subplots(1, 3)
    some = [points[i] for i in sorted({*np.linspace(0, len(points) - 1, LINES).round().astype(int).tolist()})]
    if failing := [point for point in points if point.network.direct > 0]:
        _draw_outage(outage, failing, [point.network.direct for point in some if point in failing])
    else:
        outage.set(title="no outage")
    _draw_shares(recovered, some, [point.best.num_recovered for point in some])
    recovered.set(title="|W|: nodes that count", xlabel="nodes")
    recovered.legend(title="outage of a link", fontsize="small", title_fontsize="small")
    _draw_shares(relays, some, [point.relay_slots for point in some])
    relays.set(title="relay slots sent, with early stop", xlabel="relay slots")
    figure.savefig(path, dpi=110)


def _draw_outage(axes: Axes, points: Sequence[Point], named: Sequence[float]) -> None:
    network = points[0].network
    pe = [point.network.direct for point in points]
    for method, (marker, colour) in STYLES.items():
        if method in points[0].figures:
            _draw_method(axes, points, method, marker, colour)
    dominant = f"$P_e^{{{network.order}}}$" if network.equal_links else UNHEARD
    axes.plot(pe, [point.network.dominant for point in points], "k--", marker="_", label=dominant, linewidth=1)
    axes.plot(pe, pe, ":", marker="_", color="tab:red", label="direct transmission")
    found = fitted_slope(points)
    title = "one message is not recovered" + ("" if found is None else f": slope {found:.2f}")
    where = "" if network.equal_links else " to the PS, mean"
    axes.set(title=title, xlabel=f"outage probability of a link{where}", ylabel="probability")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(named, [f"{value:.3g}" for value in named])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _draw_method(axes: Axes, points: Sequence[Point], method: MethodName, marker: str, colour: str) -> None:
    """Points with intervals of 95 %; where nothing failed, an arrow down from the upper limit."""
    estimates = [point.figures[method].outage for point in points]
    pe = np.array([point.network.direct for point in points])
    value, low, high = np.array([(each.value, each.low, each.high) for each in estimates]).T
    seen = value > 0
    bars = np.array([value - low, high - value])[:, seen] if method != "exact" else None
    if seen.any():
        axes.errorbar(
            pe[seen], value[seen], bars, fmt=marker, color=colour, markersize=5, capsize=3, fillstyle="none", label=method
        )
    limits = ~seen & (high > 0)
    if limits.any():
        axes.plot(pe[limits], high[limits], "v", color=colour, markersize=5, label=f"{method}: below, with 95 %")


def _draw_shares(axes: Axes, points: Sequence[Point], shares: Sequence[Floats]) -> None:
    for point, each in zip(points, shares, strict=True):
        drawn = np.where(each > 0, each, np.nan)
        axes.plot(range(len(each)), drawn, marker="o", markersize=4, label=f"{point.network.direct:.4g}")
    axes.set(ylabel="probability")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
