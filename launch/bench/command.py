"""What `dncfl bench` does, apart from `dncfl bench scale`."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from dncfl.launch.bench.coding import coding_figures
from dncfl.launch.bench.gpu import gpu_figures
from dncfl.launch.bench.report import as_json, print_figures
from dncfl.launch.bench.rounds import round_figures
from dncfl.launch.bench.start import start_figures
from dncfl.launch.bench.timing import Figure
from dncfl.launch.bench.training import training_figures


def measure(part: str, seconds: float, rounds: int, data_root: str | None) -> dict[str, Any]:
    """Measure `coding`, `rounds`, `training`, `start` or `all`, and print figures on stderr as they come; returns them."""

    def figures() -> Iterator[Figure]:
        if part in ("coding", "all"):
            yield from coding_figures(seconds)
            yield from gpu_figures(seconds)
        if part in ("rounds", "all"):
            yield from round_figures(rounds, data_root)
        if part in ("training", "all"):
            yield from training_figures(seconds, data_root)
        if part in ("start", "all"):
            yield from start_figures()

    return as_json(print_figures(figures(), Console(stderr=True)))
