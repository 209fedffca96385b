"""What `dncfl bench` does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from dncfl.common.storage import make_place
from dncfl.launch.bench.coding import coding_figures
from dncfl.launch.bench.report import as_json, print_figures
from dncfl.launch.bench.rounds import round_figures
from dncfl.launch.bench.scale import PICTURE, TABLE, Size, sizes, write_sizes
from dncfl.launch.bench.start import start_figures
from dncfl.launch.bench.timing import Figure
from dncfl.launch.bench.training import training_figures


def measure(part: str, seconds: float, rounds: int, data_root: str | None) -> dict[str, Any]:
    """Measure `coding`, `rounds`, `training`, `start` or `all`, and print figures on stderr as they come; returns them."""

    def figures() -> Iterator[Figure]:
        if part in ("coding", "all"):
            yield from coding_figures(seconds)
        if part in ("rounds", "all"):
            yield from round_figures(rounds, data_root)
        if part in ("training", "all"):
            yield from training_figures(seconds, data_root)
        if part in ("start", "all"):
            yield from start_figures()

    return as_json(print_figures(figures(), Console(stderr=True)))


def measure_scale(folder: Path, rounds: int) -> None:
    """Measure rounds of growing size, print them and write them to a folder. Raises StorageError."""
    make_place(folder, [TABLE, PICTURE])
    console, found = Console(stderr=True), list[Size]()
    console.print("  nodes  parameters  early stop   seconds   MB a round  MB memory  files at PS  threads", soft_wrap=True)
    for size in sizes(rounds):
        found.append(size)
        console.print(
            f"{size.clients:>7} {size.parameters:>11,} {'yes' if size.early_stop else 'no':>11} {size.seconds:>9.4f} "
            f"{size.megabytes:>12.2f} {size.memory:>10,.0f} {size.descriptors:>12} {size.threads:>8}",
            highlight=False,
            soft_wrap=True,
        )
    write_sizes(folder, found)
    console.print(f"written to {folder}", highlight=False)
