"""Start-up of a local run: from the command to the end of its first round, and the memory of all its processes."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from dncfl.common.errors import BenchmarkError
from dncfl.launch.bench.timing import Figure


def start_figures(times: int = 3) -> Iterator[Figure]:
    """The median of some starts of ten nodes that train on digits."""
    starts = [_start() for _ in range(times)]
    seconds, memory = (median(values) for values in zip(*starts, strict=True))
    yield Figure("start: ten nodes trained, first round over", seconds, "s", at_most=4.0)
    yield Figure("start: memory of the PS, ten nodes and their fork server (PSS)", memory, "MB", at_most=700.0)


def _start() -> tuple[float, float]:
    """Seconds to the end of the first round, and megabytes then."""
    with tempfile.TemporaryDirectory() as folder:
        started = perf_counter()
        command = [sys.executable, "-m", "dncfl.launch", "run", "--rounds", "100", "--out", f"{folder}/run"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    if re.match(r"\s*1/100\s", line):
                        return perf_counter() - started, memory_of_family(process.pid)
            finally:
                process.terminate()
        raise BenchmarkError(f"dncfl run ended with exit code {process.returncode} before its first round")


def memory_of_family(pid: int) -> float:
    """Megabytes of a process and all its descendants, pages that several of them map shared out among them (PSS)."""
    return sum(_memory(member) for member in family(pid)) / 1000


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    try:
        children = [
            int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []  # it has just ended
    return [pid, *(member for child in children for member in family(child))]


def _memory(pid: int) -> int:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
