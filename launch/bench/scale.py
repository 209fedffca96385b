"""How a round without training grows with the number of nodes and of parameters."""

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console

from dncfl.common.config import load_config
from dncfl.common.errors import BenchmarkError
from dncfl.common.storage import make_place, writing
from dncfl.launch.bench.settings import OUTAGE, SMALL
from dncfl.launch.bench.start import family, memory_of_family
from dncfl.launch.bench.untrained import WARM_UP, untrained_rounds
from dncfl.launch.local import ignoring_interrupts

CLIENTS = (4, 8, 16, 32, 64)
PARAMETERS = (10_000, 100_000, 1_000_000, 10_000_000)
TABLE, PICTURE = "scale.csv", "scale.png"


@dataclass(frozen=True, kw_only=True)
class Size:
    """A round of one size."""

    clients: int
    parameters: int
    early_stop: bool
    seconds: float
    """median of a round"""
    megabytes: float
    """on the wire in a round, mean"""
    memory: float
    """MB of all processes (PSS)"""
    descriptors: int
    """open files and sockets at the PS"""
    threads: int
    """of all processes"""


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


def sizes(rounds: int) -> Iterator[Size]:
    """Rounds of growing M at the letter's d, then of growing d at M = 10, both schedules, each in a process of its own.

    What one size has left behind would count as memory of the next.
    """
    few = max(4, rounds // 5)
    chosen = [(clients, SMALL, rounds) for clients in CLIENTS]
    chosen += [(10, parameters, rounds if parameters < 10**6 else few) for parameters in PARAMETERS]
    for clients, parameters, number in chosen:
        for early_stop in (True, False):
            yield _in_its_own_process(clients, parameters, early_stop, number)


def _in_its_own_process(clients: int, parameters: int, early_stop: bool, rounds: int) -> Size:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send_size, args=(theirs, clients, parameters, early_stop, rounds))
    with ignoring_interrupts():
        process.start()
    theirs.close()
    try:
        found: Size = ours.recv()
    except EOFError:
        raise BenchmarkError(f"the process that measured {clients} nodes with {parameters:,} parameters ended early") from None
    finally:
        process.kill()  # it has said all, or need not; its nodes leave with it
        process.join()
    return found


def _send_size(result: Connection, clients: int, parameters: int, early_stop: bool, rounds: int) -> None:
    result.send(_size(clients, parameters, early_stop, rounds))


def _size(clients: int, parameters: int, early_stop: bool, rounds: int) -> Size:
    config = load_config(None, {"clients": clients, "rounds": rounds + WARM_UP, "early_stop": early_stop, "pe": OUTAGE})
    seen: list[tuple[float, int, int]] = []

    def look() -> None:
        members = family(os.getpid())
        threads = sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in members)
        seen.append((memory_of_family(os.getpid()), len(list(Path("/proc/self/fd").iterdir())), threads))

    measured = untrained_rounds(config, parameters, look)
    megabytes = np.mean([sum(sum(kinds.values()) for kinds in record.bytes.values()) for record in measured.records]) / 1e6
    memory, descriptors, threads = seen[0]
    return Size(
        clients=clients,
        parameters=parameters,
        early_stop=early_stop,
        seconds=median(measured.seconds),
        megabytes=float(megabytes),
        memory=memory,
        descriptors=descriptors,
        threads=threads,
    )


def exponent(found: Sequence[Size], variable: str, quantity: str) -> float:
    """The b of the fit quantity ~ variable^b, by least squares on logarithms."""
    x, y = ([getattr(size, name) for size in found] for name in (variable, quantity))
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def write_sizes(folder: Path, found: Sequence[Size]) -> None:
    """scale.csv and scale.png in a folder. Raises StorageError."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogFormatter, NullLocator

    with writing(f"the table {folder / TABLE}"), (folder / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(size) for size in found)
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3)
    for row, (variable, label) in enumerate((("clients", "nodes M, at d = 21,840"), ("parameters", "parameters d, at M = 10"))):
        chosen = [size for size in found if (size.parameters == SMALL) == (variable == "clients")]
        for axis, (quantity, title) in zip(
            axes[row],
            (("seconds", "seconds a round"), ("megabytes", "MB on the wire a round"), ("memory", "MB of memory (PSS)")),
            strict=True,
        ):
            for early_stop, name in ((True, "early stop"), (False, "letter's schedule")):
                line = [size for size in chosen if size.early_stop is early_stop]
                values = [[getattr(size, field) for size in line] for field in (variable, quantity)]
                axis.loglog(*values, marker="o", label=f"{name}: slope {exponent(line[-3:], variable, quantity):.2f}")
            axis.set(xlabel=label, title=title, xticks=sorted({getattr(size, variable) for size in chosen}))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
            for ticks in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
                ticks(LogFormatter(minor_thresholds=(1, 0.4)))
            axis.grid(alpha=0.3, which="both")
            axis.legend(title="of the last three", fontsize=8, title_fontsize=8)
    with writing(f"the picture {folder / PICTURE}"):
        figure.savefig(folder / PICTURE, dpi=110)
