"""Sweeps as commands: killed and resumed on real workers, against `dncfl simulate`, over sockets, and on Ray."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import polars as pl
import psutil
import pytest
from safetensors import safe_open

from dncfl.launch.sweep.engines import ENGINES
from tests.integration.processes import call, finish, start, summary

GRID = """
clients = 3
rounds = 2
local_epochs = 1
model = "small:linear"
seeds = 2

[axes]
method = ["dnc", "nonanonymous"]
snr = [1, 3]
"""

MODELS = """
import os, signal
from pathlib import Path
from torch import nn


def linear():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def broken():
    raise ValueError("no such layer")


def starved():
    os.kill(os.getpid(), signal.SIGKILL)


def noted():
    import ray
    from dncfl.common.tasks.model import PaperCNN

    here = ray.get_runtime_context()
    with Path(__file__).with_name("starts").open("a") as starts:
        print(here.get_task_id(), here.get_node_id(), file=starts)
    return PaperCNN()
"""

NUM_RUNS = 8
END_SECONDS = 5.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(MODELS)
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path


def finished_runs(sweep: Path) -> set[str]:
    return {path.name for path in (sweep / "runs").glob("*") if path.suffix != ".new"}


def stop_after(number: int, process: subprocess.Popen[str], sweep: Path, by: signal.Signals) -> int:
    """`stop` a sweep after some runs."""
    while process.poll() is None and len(finished_runs(sweep)) < number:
        time.sleep(0.01)  # polls what another process writes
    return stop(process, by)


def stop(process: subprocess.Popen[str], by: signal.Signals) -> int:
    """Send a signal to a sweep, and to its whole group if it is Ctrl-C; all its processes must end."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(by)
    if by == signal.SIGINT:
        for child in family:
            child.send_signal(by)
    process.communicate(timeout=END_SECONDS)
    _, alive = psutil.wait_procs(family, timeout=END_SECONDS)
    assert not alive
    return process.returncode


def check_complete(sweep: Path) -> pl.DataFrame:
    """Every run of the grid is there once, with all its rounds."""
    assert len(finished_runs(sweep)) == NUM_RUNS
    table = pl.read_parquet(sweep / "table.parquet")
    keys = table.select("method", "snr", "seed", "round")
    assert len(keys) == len(keys.unique()) == NUM_RUNS * 2
    return table


def test_killed_and_interrupted_and_resumed(folder: Path) -> None:
    command, sweep = ("sweep", "grid.toml", "--out", "sweep", "--workers", 2), folder / "sweep"
    assert stop_after(1, start(*command, cwd=folder), sweep, signal.SIGKILL) == -signal.SIGKILL
    first = finished_runs(sweep)
    assert 0 < len(first) < NUM_RUNS
    assert stop_after(len(first) + 1, start(*command, cwd=folder), sweep, signal.SIGINT) == 128 + signal.SIGINT
    second = finished_runs(sweep)
    assert first < second
    outcome = summary(*command, cwd=folder)
    assert (outcome["runs_before"], outcome["runs_computed"]) == (len(second), NUM_RUNS - len(second))
    table = check_complete(sweep)

    (run,) = sweep.glob("runs/method=dnc,snr=1,seed=1-*")
    simulated = summary("simulate", run / "config.toml", "--out", "simulated", cwd=folder)
    same = table.filter(method="dnc", snr=1, seed=1)
    assert same["accuracy"][-1] == simulated["final_accuracy"]
    lines = (folder / "simulated" / "metrics.jsonl").read_text().splitlines()
    assert same["loss"].to_list() == [json.loads(line)["loss"] for line in lines]

    assert call("plot", "sweep", cwd=folder)[:2] == (0, "picture   sweep/accuracy-by-round.png\n")
    assert (sweep / "accuracy-by-round.png").exists()


@pytest.mark.parametrize("engine", ["looped", "sockets"])
def test_a_run_that_is_killed_goes_on_where_it_was(folder: Path, engine: str) -> None:
    (folder / "long.toml").write_text('clients = 3\nrounds = 40\nlocal_epochs = 1\nmodel = "small:linear"\n')
    command, sweep = ("sweep", "long.toml", "--out", "sweep", "--engine", engine), folder / "sweep"
    process = start(*command, cwd=folder)
    while process.poll() is None and not list(sweep.glob("unfinished/*.safetensors")):
        time.sleep(0.001)  # polls what another process writes
    stop(process, signal.SIGKILL)
    (kept,) = sweep.glob("unfinished/*.safetensors")
    with safe_open(kept, "numpy") as file:
        before = json.loads(file.metadata()["records"])
    assert 0 < len(before) < 40
    exit_code, _, stderr = call(*command, cwd=folder)
    assert exit_code == 0
    assert "0 of 1 runs are there already, and 1 begun" in stderr
    (run,) = finished_runs(sweep)
    records = [json.loads(line) for line in (sweep / "runs" / run / "metrics.jsonl").read_text().splitlines()]
    assert records[: len(before)] == before, "the time they took shows that they are the same, not done again"
    summary("simulate", sweep / "runs" / run / "config.toml", "--out", "simulated", cwd=folder)
    lines = (folder / "simulated" / "metrics.jsonl").read_text().splitlines()
    assert [record["loss"] for record in records] == [json.loads(line)["loss"] for line in lines]
    assert not (sweep / "unfinished").exists()


def test_sockets_and_the_reference_agree_and_failures_are_listed(folder: Path) -> None:
    cases = 'clients = 3\nrounds = 2\nlocal_epochs = 1\ncases = [{name = "good", model = "small:linear"}, '
    (folder / "few.toml").write_text(cases + '{name = "bad", model = "small:broken"}]')
    (folder / "more.toml").write_text(cases + '{name = "starved", model = "small:starved"}]')
    exit_code, _, stderr = call("sweep", "few.toml", "--out", "sockets", "--engine", "sockets", cwd=folder)
    assert exit_code == 15
    assert "case=bad,seed=0: making the model small:broken for inputs (n, 1, 28, 28) of torch.float32" in stderr
    assert "failed: ValueError: no such layer" in stderr
    exit_code, stdout, stderr = call("sweep", "more.toml", "--out", "looped", "--workers", 2, "--json", cwd=folder)
    assert exit_code == 15
    assert "1 of 2 runs failed, see looped/failures.jsonl; the same command tries again" in stderr
    (failure,) = json.loads(stdout)["failures"]
    assert failure["name"] == "case=starved,seed=0"
    assert "killed" in failure["reason"]
    by_sockets, by_loop = (pl.read_csv(folder / name / "table.csv") for name in ("sockets", "looped"))
    assert by_sockets.drop("engine", "seconds").equals(by_loop.drop("engine", "seconds"))
    assert set(by_sockets["engine"]) | set(by_loop["engine"]) == set(ENGINES) & {"sockets", "looped"}
    (one,), (other,) = ((folder / name).glob("runs/*/run.json") for name in ("sockets", "looped"))
    assert json.loads(one.read_text())["model_sha256"] == json.loads(other.read_text())["model_sha256"]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")
def test_on_ray_and_gone_on_with_elsewhere(folder: Path) -> None:
    command, sweep = ("sweep", "grid.toml", "--out", "sweep", "--workers", 2), folder / "sweep"
    process = start(*command, "--on", "ray", cwd=folder)
    assert stop_after(2, process, sweep, signal.SIGTERM) == 128 + signal.SIGTERM
    on_ray = pl.read_parquet(sweep / "table.parquet")
    num_before = len(finished_runs(sweep))
    assert 0 < num_before < NUM_RUNS
    assert summary(*command, cwd=folder)["runs_before"] == num_before
    table = check_complete(sweep)
    assert table.filter(pl.col("run").is_in(on_ray["run"].unique().implode())).equals(on_ray)
    name = on_ray["run"][0]
    (config,) = sweep.glob(f"runs/{name}-*/config.toml")
    simulated = summary("simulate", config, "--out", "simulated", cwd=folder)
    assert on_ray.filter(run=name)["accuracy"][-1] == simulated["final_accuracy"]
    assert json.loads((config.parent / "run.json").read_text())["model_sha256"] == simulated["model_sha256"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "grid.toml"), "Missing option '--out'"),
        (("sweep", "grid.toml", "--out", "a", "--engin", "looped"), "No such option '--engin'. Did you mean '--engine'?"),
        (("sweep", "grid.toml", "--out", "a", "--on", "cloud"), "--on cloud: must be cores, ray or ray:ADDRESS"),
        (
            ("sweep", "grid.toml", "--out", "a", "--engine", "batched"),
            "--engine batched: computes paper-cnn only, not small:linear; use --engine looped",
        ),
        (("sweep", "nowhere.toml", "--out", "a"), "nowhere.toml: cannot be read: No such file or directory"),
        (("sweep", "small.py", "--out", "a"), "small.py: not valid TOML"),
    ],
    ids=str,
)
def test_mistakes_leave_nothing(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    before = set(folder.iterdir())
    exit_code, stdout, stderr = call(*arguments, cwd=folder)
    assert (exit_code, stdout) == (2, "")
    assert message in stderr
    assert "Traceback" not in stderr
    assert set(folder.iterdir()) == before


def test_where_ray_is_not_installed(folder: Path) -> None:
    (folder / "ray.py").write_text("raise ModuleNotFoundError('no ray')")
    exit_code, _, stderr = call("sweep", "grid.toml", "--out", "a", "--on", "ray", cwd=folder)
    assert exit_code == 2
    assert "--on ray: Ray is not installed here; pip install 'dncfl[ray]'" in stderr


@pytest.mark.parametrize(
    ("address", "exit_code", "message"),
    [
        ("127.0.0.1:1", 5, "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("ray://127.0.0.1:1", 5, "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("somewhere", 5, "'somewhere' is no address: must be host:port"),
    ],
)
def test_where_no_cluster_answers(folder: Path, address: str, exit_code: int, message: str) -> None:
    (folder / "ray.py").touch()  # Ray itself is not asked: it would go on trying for many minutes
    ended, stdout, stderr = call("sweep", "grid.toml", "--out", "a", "--on", f"ray:{address}", cwd=folder)
    assert (ended, stdout) == (exit_code, "")
    assert message in stderr


def test_where_a_cluster_asks_for_a_token(folder: Path) -> None:
    """Ray tells it in the error before the last, after 20 s; here a stand-in does."""
    (folder / "ray.py").write_text(
        "class exceptions: RayError = KeyError\n"
        "def init(**_):\n"
        "    try:\n"
        "        raise RuntimeError('InvalidAuthToken: Authentication token is missing or incorrect')\n"
        "    except RuntimeError:\n"
        "        raise ConnectionError('Failed to connect to Ray cluster')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray:127.0.0.1:{server.getsockname()[1]}"
        exit_code, stdout, stderr = call("sweep", "grid.toml", "--out", "a", "--on", address, cwd=folder)
    assert (exit_code, stdout) == (5, "")
    assert "cannot be joined: it asks for a token, or for another one; set RAY_AUTH_MODE=token" in stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray")
def test_cluster_that_loses_a_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)  # where the machines find the model
    (folder / "long.toml").write_text(GRID.replace("rounds = 2", "rounds = 10").replace("small:linear", "small:noted"))
    starts = folder / "starts"
    starts.touch()
    cluster = importlib.import_module("ray.cluster_utils").Cluster(True, head_node_args={"include_dashboard": False})
    try:
        machine = cluster.add_node()
        process = start("sweep", "long.toml", "--out", "sweep", "--on", f"ray:{cluster.address}", cwd=folder)
        while process.poll() is None and machine.node_id not in starts.read_text():
            time.sleep(0.01)  # polls what another process writes
        cluster.remove_node(machine, allow_graceful=False)
        exit_code, _, stderr = finish(process)
    finally:
        cluster.shutdown()
    assert exit_code == 0, stderr
    assert len(finished_runs(folder / "sweep")) == NUM_RUNS
    machines = defaultdict(set)
    for line in starts.read_text().splitlines():
        job, _, where = line.partition(" ")
        machines[job].add(where)
    assert any(len(nodes) > 1 for nodes in machines.values()), "no job was lost"
