"""The figures as text, as JSON and as CSV."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dncfl.launch.outage.network import Figures, Network, slope
from dncfl.launch.outage.study import Point

SHARES_SHOWN = 6
"""Most values of |W|, and of the relay slots, that one line shows; the others are less likely."""


UNHEARD = "nobody hears the message, nor the PS its node"
"""The letter's dominant event where links differ, or relay slots are fewer."""


def describe(network: Network) -> str:
    """Its size in words."""
    slots = network.code.relay_slots
    return f"{network.num_clients} nodes, {slots} relay slot{'s' * (slots != 1)}, GF({network.code.p})"


def as_text(points: Sequence[Point]) -> Iterator[str]:
    """A few lines about one point, or a table of several."""
    network = points[0].network
    yield f"{describe(network)}: what the PS recovers in one attempt"
    yield from _about(points[0]) if len(points) == 1 else _table(points)


def _about(point: Point) -> Iterator[str]:
    network, best = point.network, point.best
    dominant = f"the letter's dominant event, P_e^{network.order}" if network.as_in_letter else UNHEARD
    direct = "P_e" if network.equal_links else "mean of the links to the PS"
    yield ""
    yield "one message is not recovered, as a mean over the nodes"
    for figures in point.figures.values():
        yield f"  {figures.outage.value:<10.4g} {_how(figures)}"
    yield f"  {network.dominant:<10.4g} {dominant}"
    yield f"  {network.direct:<10.4g} direct transmission, {direct}"
    yield f"not all {network.num_clients} messages are recovered ({best.method})"
    yield f"  {best.not_all.value:.4g}"
    yield f"nodes that count, |W| ({best.method})"
    yield "  " + _shares([float(share) for share in best.num_recovered])
    yield f"relay slots until all is recovered ({_relay_method(point)}), with early stop"
    yield f"  {point.mean_relay_slots:<10.4g} on average"
    yield "  " + _shares([float(share) for share in point.relay_slots])


def _table(points: Sequence[Point]) -> Iterator[str]:
    network = points[0].network
    dominant = f"P_e^{network.order}" if network.equal_links else "unheard"
    yield f"{'P_e':>7} {'outage':>9} {'95 %':>9} {dominant:>9} {'not all':>9} {'slots':>6}  method"
    for point in points:
        best = point.best
        yield (
            f"{point.network.direct:>7.4g} {best.outage.value:>9.3g} {_error(best):>9} {point.network.dominant:>9.3g} "
            f"{best.not_all.value:>9.3g} {point.mean_relay_slots:>6.3f}  {best.method}"
        )
    yield "outage: one message is not recovered, as a mean over the nodes; slots: relay slots sent with early stop, mean"
    if (found := fitted_slope(points)) is not None:
        yield f"slope of the outage on log-log axes: {found:.3f}; for small P_e it goes to {network.order}"


def fitted_slope(points: Sequence[Point]) -> float | None:
    """The slope of the best outages over P_e; None for fewer than two points, or where links differ."""
    networks = [point.network for point in points]
    if not all(network.equal_links for network in networks):
        return None
    return slope(networks, [point.best.outage.value for point in points])


def _how(figures: Figures) -> str:
    if figures.method == "exact":
        return "exact, from all states of the links"
    return f"{figures.method}, {figures.trials:,} trials, {_error(figures)} with 95 %"


def _error(figures: Figures) -> str:
    """The half of the interval of 95 %, the larger one, or its end where nothing failed."""
    outage = figures.outage
    if figures.method == "exact":
        return ""
    if figures.method == "Monte Carlo" and outage.value == 0:
        return f"< {outage.high:.1e}"
    return f"± {max(outage.high - outage.value, outage.value - outage.low):.1e}"


def _relay_method(point: Point) -> str:
    return point.best.method if point.best.relay_slots is not None else "Monte Carlo"


def _shares(shares: Sequence[float]) -> str:
    likely = sorted(sorted(range(len(shares)), key=lambda i: -shares[i])[:SHARES_SHOWN])
    return ", ".join(f"{i}: {shares[i]:.3g}" for i in likely if shares[i] > 0)


def as_json(points: Sequence[Point], seed: int) -> dict[str, Any]:
    """All figures by all methods."""
    network = points[0].network
    return {
        "clients": network.num_clients,
        "relay_slots": network.code.relay_slots,
        "field": network.code.p,
        "seed": seed,
        "slope": fitted_slope(points),
        "slope_in_theory": network.order,
        "points": [_point(point) for point in points],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "direct": point.network.direct,
        "dominant": point.network.dominant,
        "best": point.best.method,
        "mean_relay_slots": point.mean_relay_slots,
        "methods": {name: _figures(figures) for name, figures in point.figures.items()},
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "trials": figures.trials,
        "failures": figures.failures,
        "outage": asdict(figures.outage),
        "outage_by_node": figures.outage_by_node.tolist(),
        "not_all_recovered": asdict(figures.not_all),
        "num_recovered": figures.num_recovered.tolist(),
        "relay_slots": None if figures.relay_slots is None else figures.relay_slots.tolist(),
    }


def write_csv(path: Path, points: Sequence[Point]) -> None:
    """A line for each point and method. Raises OSError."""
    with path.open("x", newline="") as file:
        writer = csv.writer(file)
        names = ["direct", "dominant", "method", "trials", "outage", "standard_error", "low", "high", "not_all_recovered"]
        counts = range(points[0].network.num_clients + 1), range(points[0].network.code.relay_slots + 1)
        writer.writerow([*names, *(f"recovered_{n}" for n in counts[0]), *(f"relay_slots_{n}" for n in counts[1])])
        for point in points:
            for name, figures in point.figures.items():
                relay_slots = [""] * len(counts[1]) if figures.relay_slots is None else figures.relay_slots
                outage = asdict(figures.outage).values()
                links = (point.network.direct, point.network.dominant)
                writer.writerow(
                    [*links, name, figures.trials, *outage, figures.not_all.value, *figures.num_recovered, *relay_slots]
                )
