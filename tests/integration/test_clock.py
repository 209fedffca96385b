"""The wall clock decides nothing: it may step by an hour in mid-run."""

import ast
import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import dncfl.common
from dncfl.common.config import load_config
from tests.integration.honest import HONEST, HonestRun

CONFIG = load_config(None, HONEST)
HOUR = 3600.0
WALL_CLOCKS = {"time.time", "time.time_ns", "time.ctime", "time.localtime", "time.gmtime", "datetime.now", "datetime.utcnow"}
WALL_CLOCKS |= {"datetime.today", "date.today"}
ALLOWED = {("server/run_folder.py", "datetime.now")}
"""It names a new run folder."""


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["ahead", "back"])
def test_a_step_of_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """The clock steps while node 0 trains in the first round, and again after each round."""
    wall_clock = time.time
    offset = 0.0
    readings: list[float] = []
    monkeypatch.setattr(time, "time", lambda: wall_clock() + offset)

    def step_once(*_: object) -> None:
        nonlocal offset
        offset += step
        readings.append(time.time())

    async def step_while_it_trains(_: int) -> None:
        step_once()

    honest = HonestRun(CONFIG, work=1)
    monkeypatch.setattr(honest.run, "round_done", step_once)
    asyncio.run(honest.beside(step_while_it_trains))
    steps = [later - earlier for earlier, later in pairwise(readings)]
    assert len(steps) == CONFIG.rounds
    assert all(abs(each - step) < HOUR / 10 for each in steps)
    assert honest.run.warnings == []
    assert honest.num_lost == 0
    assert honest.is_as_the_reference()


def test_no_code_reads_the_wall_clock() -> None:
    root = Path(next(iter(dncfl.common.__path__))).resolve().parent
    found = {
        (str(path.relative_to(root)), name)
        for folder in ("common", "node", "server", "launch")
        for path in (root / folder).rglob("*.py")
        for name in _names(ast.parse(path.read_text()))
    }
    assert found == ALLOWED


def _names(tree: ast.AST) -> Iterator[str]:
    """The wall clocks that a module imports or calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"]
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            names = [f"time.{alias.name}" for alias in node.names]
        else:
            continue
        yield from WALL_CLOCKS.intersection(names)
