"""How a run ends when it does not end well: no process, no port, no lost round, and a reason."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.processes import COMMAND, call, finish, start, summary, summary_here

SECONDS_TO_END = 5


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A long run of four nodes that has finished its first round."""
    process = start("run", "--clients", 4, "--rounds", 100_000, "--out", "run", cwd=tmp_path)
    _wait_for_rounds(tmp_path, process)
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def _wait_for_rounds(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 1):
        time.sleep(0.05)  # polls a file that another process writes
    assert process.poll() is None, process.communicate()


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def _nodes(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The four node processes: forked last, by the fork server."""
    nodes = sorted((child for child in _family(process) if child.ppid() != process.pid), key=lambda child: child.pid)
    assert len(nodes) == 4
    return nodes


def _listening(processes: list[psutil.Process]) -> set[int]:
    return _listening_ports(connection for process in processes for connection in process.net_connections("tcp"))


def _listening_ports(connections: Iterable[Any]) -> set[int]:
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def _all_gone(family: list[psutil.Process], ports: set[int]) -> None:
    _, alive = psutil.wait_procs(family, timeout=SECONDS_TO_END)
    assert not alive
    assert not ports & _listening_ports(psutil.net_connections("tcp"))


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_and_keeps_what_is_done(
    running: subprocess.Popen[str], tmp_path: Path, number: int, exit_code: int
) -> None:
    family, ports = _family(running), _listening([psutil.Process(running.pid), *_family(running)])
    assert len(ports) >= 2 + 4  # control and downlink of the PS, one port per node
    started = time.monotonic()
    running.send_signal(number)
    code, _, stderr = finish(running)
    assert code == exit_code
    assert stderr.splitlines()[-1] == f"dncfl: stopped by {signal.Signals(number).name}"
    assert "Traceback" not in stderr
    _all_gone(family, ports)
    assert time.monotonic() - started < SECONDS_TO_END
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not summary["completed"]
    assert summary["rounds_done"] == (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") >= 1
    assert (tmp_path / "run" / "run.png").exists()
    assert _model_follows_from_the_trace(tmp_path)


def _model_follows_from_the_trace(tmp_path: Path) -> bool:
    """Whether the replay of an interrupted run ends with its model: no round too many is in it, and none too few."""
    return bool(summary_here("replay", "run", "--out", "replayed", cwd=tmp_path)["matches"])


def test_ctrl_c_reaches_the_whole_group(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the nodes too; they must leave the last word to the launcher."""
    process = subprocess.Popen(
        [*COMMAND, "run", "--clients", "3", "--rounds", "100000", "--out", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _wait_for_rounds(tmp_path, process)
    family, ports = _family(process), _listening(_family(process))
    os.killpg(process.pid, signal.SIGINT)
    code, _, stderr = finish(process)
    assert code == 130
    assert "Traceback" not in stderr
    _all_gone(family, ports)


@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.0, 3.5])
@pytest.mark.parametrize("command", ["run", "simulate"])
def test_ctrl_c_before_the_first_round(tmp_path: Path, command: str, seconds: float) -> None:
    """In the imports, in loading, in starting nodes: a line and 130, no traceback, no process and no folder."""
    process = subprocess.Popen(
        [*COMMAND, command, "--clients", "8", "--local-epochs", "1000", "--out", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(seconds)  # the moment is the thing under test
    family = _family(process)
    os.killpg(process.pid, signal.SIGINT)
    code, _, stderr = finish(process)
    assert "Traceback" not in stderr
    assert (code, stderr) in ((130, "dncfl: stopped by SIGINT\n"), (-signal.SIGINT, ""))  # the latter before Python runs us
    assert code == 130 or seconds < 1
    _all_gone(family, set())
    assert not (tmp_path / "run").exists()


def test_killing_the_launcher_leaves_no_node(running: subprocess.Popen[str]) -> None:
    family, ports = _family(running), _listening(_family(running))
    running.kill()
    running.communicate()
    _all_gone(family, ports)


def test_a_killed_node_is_told_and_the_run_goes_on_without_it(running: subprocess.Popen[str], tmp_path: Path) -> None:
    """Two of four may go; with the third the run ends."""
    family, ports = _family(running), _listening(_family(running))
    nodes = _nodes(running)
    for killed in nodes[:2]:
        killed.kill()
        _wait_for_letters(tmp_path, running, lost_rows=nodes.index(killed) + 1)
    nodes[2].kill()
    code, _, stderr = finish(running)
    assert code == 6
    assert stderr.count("was killed by SIGKILL\n") == 4  # a warning each, and the last line
    assert re.fullmatch(
        r"dncfl: 1 of 4 nodes is left, fewer than min_nodes = 2; the last to go is node \d: it was killed by SIGKILL",
        stderr.splitlines()[-1],
    )
    _all_gone(family, ports)
    assert "was killed" in json.loads((tmp_path / "run" / "summary.json").read_text())["stopped_by"]
    assert _model_follows_from_the_trace(tmp_path)


def _wait_for_letters(tmp_path: Path, process: subprocess.Popen[str], lost_rows: int) -> None:
    """Wait for a round in which everything of so many nodes is lost."""

    def found() -> bool:
        line = (tmp_path / "run" / "trace.jsonl").read_text().splitlines()[-1]
        return sum(set(row) <= {"l", "-"} for row in json.loads(line)["slot1"]) == lost_rows

    while process.poll() is None and not found():
        time.sleep(0.05)  # polls a file that another process writes
    assert process.poll() is None, process.communicate()


def test_an_error_in_training_is_told_with_node_and_reason(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.linear = nn.Linear(784, 10)\n"
        "    def forward(self, x):\n"
        "        if self.training: raise ValueError('the user made a mistake')\n"
        "        return self.linear(x.flatten(1))\n"
    )
    code, _, stderr = call("run", "--clients", 2, "--model", "mine:Net", "--out", "run", cwd=tmp_path)
    assert code == 6
    assert "training at node" in stderr
    assert "failed: ValueError: the user made a mistake" in stderr
    assert "mine.py" in stderr  # with the place in the user's file
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_an_error_in_evaluation_is_told_and_the_last_round_stays(tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    calls = 0\n"
        "    def __init__(self): super().__init__(); self.linear = nn.Linear(784, 10)\n"
        "    def forward(self, x):\n"
        "        if not self.training and len(x) > 2:\n"  # two blank images are how it is tried at first
        "            Net.calls += 1\n"
        "            if Net.calls == 3: raise ValueError('the third evaluation')\n"
        "        return self.linear(x.flatten(1))\n"
    )
    code, _, stderr = call(command, "--clients", 2, "--model", "mine:Net", "--out", "run", cwd=tmp_path)
    assert code == 11
    assert "evaluation after round 3 failed: ValueError: the third evaluation" in stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["rounds_done"], summary["completed"]) == (2, False)
    (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text().replace("== 3", "== 99"))
    code, _, stderr = call("replay", "run", "--out", "replayed", cwd=tmp_path)
    assert code == 0, stderr


def test_an_update_that_is_not_finite_ends_the_run_by_name(tmp_path: Path) -> None:
    code, _, stderr = call("run", "--clients", 2, "--lr", "1e30", "--out", "run", cwd=tmp_path)
    assert code == 6
    assert "holds NaN or infinite values" in stderr
    assert "Traceback" not in stderr


def test_a_full_disk_stops_the_run_cleanly_and_it_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """/dev/full behind metrics.jsonl: every write fails as on a full disk."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    process = start("run", "--clients", 2, "--rounds", 100_000, "--out", "run", cwd=tmp_path)
    _wait_for_rounds(tmp_path, process)
    metrics = tmp_path / "run" / "metrics.jsonl"
    metrics.rename(tmp_path / "run" / "metrics-so-far.jsonl")
    metrics.symlink_to("/dev/full")
    code, _, stderr = finish(process)
    assert code == 4
    assert "No space left on device" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert _model_follows_from_the_trace(tmp_path)
    metrics.unlink()
    (tmp_path / "run" / "metrics-so-far.jsonl").rename(metrics)
    done = metrics.read_text().count("\n")
    rounds = ["--rounds", done + 2]
    resumed = summary("run", "--resume", "run", *rounds, cwd=tmp_path)
    assert resumed["rounds_done"] == done + 2
    assert (
        resumed["model_sha256"] == summary_here("simulate", "--clients", 2, *rounds, "--out", "b", cwd=tmp_path)["model_sha256"]
    )
