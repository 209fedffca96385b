"""The same bits from sockets, from one process, and from the recorded trace."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from dncfl.common.config import load_config
from dncfl.launch.simulate import replay_run, simulate_run
from tests.integration.processes import call, summary

METHODS = ["dnc", "qfl", "nonanonymous", "anonymous"]
UNEQUAL = {"nodes": [[0, 0.1, 0.2, 0.1]] * 3 + [[0.3, 0.3, 0.3, 0]], "server": [0.9, 0.2, 1.0, 0.5]}


def _lines(path: Path) -> list[dict[str, object]]:
    """metrics.jsonl without what depends on the clock and the wire."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("bytes", "seconds")} for line in lines]


def _equal(tmp_path: Path, options: dict[str, object]) -> dict[str, Any]:
    """The summary of a run over sockets, once the reference and the replay, computed here, have been found equal."""
    file = tmp_path / "options.toml"
    file.write_text(tomli_w.dumps(options))
    run = summary("run", file, "--out", "run", cwd=tmp_path)
    simulated = simulate_run(load_config(None, options | {"out": str(tmp_path / "simulated")}))
    recorded = load_config(tmp_path / "run" / "config.toml", {"out": str(tmp_path / "replayed")})
    replayed = replay_run(recorded, tmp_path / "run")
    assert run["model_sha256"] == simulated["model_sha256"] == replayed["model_sha256"]
    assert replayed["matches"]
    for name in ("simulated", "replayed"):
        assert (tmp_path / "run" / "trace.jsonl").read_text() == (tmp_path / name / "trace.jsonl").read_text()
        assert _lines(tmp_path / "run" / "metrics.jsonl") == _lines(tmp_path / name / "metrics.jsonl")
    return run


@pytest.mark.parametrize(("method", "partition"), list(product(METHODS, ["iid", "classes:1"])))
def test_all_methods(tmp_path: Path, method: str, partition: str) -> None:
    options = {"method": method, "partition": partition, "rounds": 5, "clients": 10, "snr": 3, "local_epochs": 1}
    run = _equal(tmp_path, options)
    assert run["rounds_done"] == 5
    transmissions = run["transmissions"]
    assert (transmissions["erased"] > 0) == (method != "qfl")
    assert transmissions["lost"] == 0
    assert transmissions["sent"] == transmissions["delivered"] + transmissions["erased"]


@pytest.mark.parametrize(
    ("clients", "options"),
    [
        (2, {"pe": 0.7, "rounds": 6}),
        (3, {"pe": 0.7, "rounds": 6}),
        (3, {"pe": 0.7, "rounds": 6, "decode": "partial"}),
        (3, {"pe": 0.7, "rounds": 6, "early_stop": False}),
        (16, {"pe": 0.7, "rounds": 2, "relay_slots": 1, "max_attempts": 2}),
        (20, {"pe": 0.4, "rounds": 1, "bound": "adaptive", "partition": "dirichlet:0.5"}),
        (3, {"pe": 0.7, "rounds": 6, "decode": "partial", "method": "repetition"}),
        (4, {"pe": UNEQUAL, "rounds": 4, "early_stop": False, "method": "colrel"}),
        (4, {"pe": UNEQUAL, "rounds": 2, "bound": "per-tensor", "method": "colrel"}),
        (20, {"pe": 0.4, "rounds": 1, "bound": "per-tensor"}),
    ],
)
def test_repeats_partial_decodes_and_other_fields(tmp_path: Path, clients: int, options: dict[str, object]) -> None:
    run = _equal(tmp_path, {"clients": clients, "local_epochs": 1} | options)
    rounds = _lines(tmp_path / "run" / "metrics.jsonl")
    assert len(rounds) == run["rounds_done"]
    if clients <= 3:
        assert any(len(line["recovered"]) < clients for line in rounds)  # type: ignore[arg-type]  # a list in JSON
        assert (run["attempts"] > run["rounds_done"]) == ("decode" not in options)


def test_a_changed_trace_gives_another_model_and_says_so(tmp_path: Path) -> None:
    arguments = ["--clients", 2, "--rounds", 2, "--pe", 0.5, "--method", "nonanonymous", "--out", "run"]
    summary("simulate", *arguments, cwd=tmp_path)
    assert summary("replay", "run", "--out", "same", cwd=tmp_path)["matches"]
    trace = tmp_path / "run" / "trace.jsonl"
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    last = lines[-1]["slot1"]
    lines[-1]["slot1"] = [row[:-1] + ("e" if row.endswith("d") else "d") for row in last]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    exit_code, _, stderr = call("replay", "run", "--out", "replayed", cwd=tmp_path)
    assert exit_code == 10
    assert "differs from the recorded" in stderr
