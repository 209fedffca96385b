"""The figures of a benchmark as a table for people and as JSON."""

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.console import Console

from dncfl.launch.bench.timing import Figure

COMPARED = ("dncfl", "numpy", "numba", "galois", "python-flint", "zfec", "pyeclib", "pyzmq", "torch", "flwr")


def print_figures(figures: Iterable[Figure], console: Console) -> list[Figure]:
    """Print each figure as soon as it is there; returns them all."""
    shown = []
    for figure in figures:
        shown.append(figure)
        value = "-" if figure.value is None else f"{figure.value:,.2f} {figure.unit}"
        goal = "" if figure.at_least is None else f"at least {figure.at_least:g}"
        goal = goal if figure.at_most is None else f"at most {figure.at_most:g}"
        verdict = {True: "met", False: "NOT MET", None: ""}[figure.met]
        console.print(f"{figure.name:<62} {value:>28}   {goal:<14} {verdict} {figure.note}", highlight=False, soft_wrap=True)
    return shown


def as_json(figures: Iterable[Figure]) -> dict[str, Any]:
    """All figures with what they were measured on."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "versions": {"python": platform.python_version()} | _versions(),
        "figures": [asdict(figure) | {"met": figure.met} for figure in figures],
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in COMPARED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
