"""The benchmark: that it checks before it times, and that ours stays ahead of the others by ratios with much room to spare."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dncfl.common.errors import BenchmarkError
from dncfl.launch.bench import coding
from dncfl.launch.bench.coding import Candidate, coding_figures
from dncfl.launch.bench.gpu import gpu_figures
from dncfl.launch.bench.report import as_json
from dncfl.launch.bench.scale import Size, exponent
from dncfl.launch.bench.settings import SMALL
from dncfl.launch.bench.timing import Figure, take_turns
from tests.integration.processes import call


def test_ours_is_ahead_in_coding() -> None:
    """About a third of what was measured at worst: a guard against a lost optimisation, not a measurement."""
    encoding = {figure.name.strip(): figure.value for figure in coding._encoding(10, SMALL, {}, seconds=1.0)}
    assert _value(encoding["galois takes"]) > 3
    assert _value(encoding["numpy takes"]) > 1
    assert _value(encoding["with packing for the wire"]) < 4
    _, plan = coding._decoding(10, None, 1000.0, seconds=0.5)
    assert _value(plan.value) > 50


ROUNDS = """
from statistics import median
from dncfl.common.config import load_config
from dncfl.launch.bench.raw_round import raw_rounds
from dncfl.launch.bench.untrained import untrained_rounds

config = load_config(None, {"rounds": 33})
ours, raw = untrained_rounds(config, 21_840), raw_rounds(10, 21_840, 33)
assert len(ours.seconds) == len(ours.records) == 30
print(median(ours.seconds) / median(raw[3:]))
"""


def test_a_round_stays_near_that_of_bare_sockets() -> None:
    """As above: 1.6 times was measured. In a process of its own, whose fork server ends with it."""
    found = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, timeout=120, check=True)
    assert 0.5 < float(found.stdout) < 5


def test_nothing_is_timed_that_gives_another_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(*_: Any) -> Candidate:
        return Candidate(lambda: 0, lambda _, x: np.ones((9, len(x)), dtype=np.int64))

    off_by_one.__name__ = "_numpy"
    monkeypatch.setattr(coding, "_numpy", off_by_one)
    with pytest.raises(BenchmarkError, match="M=10 d=21,840: numpy differs from plain arithmetic"):
        next(coding_figures(0.1))


def test_without_a_gpu_its_figures_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    figures = list(gpu_figures(0.1))
    assert [(figure.value, figure.met, figure.note) for figure in figures] == [(None, None, "no GPU here")] * 2


def test_candidates_take_turns() -> None:
    calls: list[str] = []
    took = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0.01)
    assert set(took) == {"a", "b"}
    turns = [name for name, before in zip(calls[2:], ["", *calls[2:]], strict=False) if name != before]
    assert turns == ["a", "b"] * (len(turns) // 2)
    assert len(turns) >= 10


def test_figures_say_whether_they_are_met() -> None:
    assert Figure("a", 2.0, "x", at_least=2.0).met
    assert Figure("a", 2.0, "x", at_most=1.9).met is False
    assert Figure("a", None, "x", at_least=1.0, note="not installed").met is None
    assert Figure("a", 2.0, "x").met is None
    assert as_json([Figure("a", 2.0, "x", at_least=3.0)])["figures"][0]["met"] is False


NODE = """
import sys
import dncfl.launch.local, dncfl.node.process
before = set(sys.modules)
import dncfl.launch.bench.no_training
print(*set(sys.modules) - before)
"""


def test_nodes_of_a_benchmark_import_what_other_nodes_do() -> None:
    """Or their memory would not be that of a node."""
    found = subprocess.run([sys.executable, "-c", NODE], capture_output=True, text=True, timeout=60, check=True)
    assert set(found.stdout.split()) == {"dncfl.launch.bench", "dncfl.launch.bench.no_training"}


def test_exponents_of_growth() -> None:
    sizes = [
        Size(clients=m, parameters=1, early_stop=True, seconds=3.0 * m**2, megabytes=1, memory=1, descriptors=1, threads=1)
        for m in (4, 8, 16)
    ]
    assert exponent(sizes, "clients", "seconds") == pytest.approx(2)


def test_scale_needs_a_folder(tmp_path: Path) -> None:
    exit_code, _, stderr = call("bench", "scale", cwd=tmp_path)
    assert exit_code == 2
    assert "scale needs --out FOLDER" in stderr


def _value(value: float | None) -> float:
    assert value is not None
    return value
