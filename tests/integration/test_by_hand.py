"""PS and nodes started by hand: in any order, at any time, and refused where they do not fit."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.processes import call, finish, start, summary, summary_here

OPTIONS = ["--clients", 3, "--rounds", 2, "--local-epochs", 1]
QUIET = ["--log-level", "warning"]


def _server(tmp_path: Path, *options: object) -> tuple[subprocess.Popen[str], str]:
    """A PS on a free port, and the address that it announces."""
    server = start("server", *OPTIONS, *options, "--bind", "127.0.0.1:0", "--out", "run", "--log-level", "info", cwd=tmp_path)
    assert server.stderr is not None
    announced = re.search(r"dncfl node NUMBER --server (127\.0\.0\.1:\d+)(.*)   \(", server.stderr.readline())
    assert announced is not None
    assert announced[2].split() == [
        str(option) for option in options if "mine:" in str(option) or option in ("--model", "--dataset")
    ]
    return server, announced[1]


def _node(number: int, address: str, tmp_path: Path) -> subprocess.Popen[str]:
    return start("node", number, "--server", address, cwd=tmp_path)


def _run(tmp_path: Path, order: tuple[int, ...], pauses: tuple[int, ...], *options: object) -> None:
    server, address = _server(tmp_path, *options)
    nodes = []
    for number, pause in zip(order, pauses, strict=True):
        nodes.append(_node(number, address, tmp_path))
        time.sleep(pause)  # the stagger is the thing under test; nothing waits on it
    exit_code, _, stderr = finish(server)
    assert exit_code == 0, stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]


ORDERS = [((0, 1, 2), (0, 0, 0)), ((2, 0, 1), (2, 3, 0))]


@pytest.mark.parametrize(("order", "pauses"), ORDERS, ids=["at once", "shuffled and staggered"])
def test_bad_links_give_the_references_model_in_any_order_of_starting(
    tmp_path: Path, order: tuple[int, ...], pauses: tuple[int, ...]
) -> None:
    options = ["--pe", 0.75, "--rounds", 6]
    _run(tmp_path, order, pauses, *options)
    run = json.loads((tmp_path / "run" / "summary.json").read_text())
    simulated = summary_here("simulate", *OPTIONS, *options, "--out", "simulated", cwd=tmp_path)
    assert run["model_sha256"] == simulated["model_sha256"]
    assert run["attempts"] > 6


@pytest.mark.parametrize(("order", "pauses"), ORDERS, ids=["at once", "shuffled and staggered"])
def test_perfect_links_lose_nothing_however_late_a_node_is(
    tmp_path: Path, order: tuple[int, ...], pauses: tuple[int, ...]
) -> None:
    _run(tmp_path, order, pauses, "--channel", "perfect")
    trace = (tmp_path / "run" / "trace.jsonl").read_text()
    outcomes = "".join(re.findall(r'"([del-]+)"', trace))
    assert set(outcomes) == {"d", "-"}
    assert outcomes.count("-") == 2 * 3  # a node's own link, per round and node
    exit_code, stdout, _ = call("replay", "run", "--out", "replayed", cwd=tmp_path)
    assert exit_code == 0
    assert "(matches the recorded run)" in stdout
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert all(value >= 0 for line in metrics for value in json.loads(line)["seconds"].values())


def test_nodes_that_do_not_fit_are_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    server, address = _server(tmp_path)
    first = _node(0, address, tmp_path)
    exit_code, _, stderr = call("node", 3, "--server", address, *QUIET, cwd=tmp_path)
    assert (exit_code, stderr) == (5, "dncfl: the PS refused node 3: there is no node 3: the run has nodes 0..2\n")
    second, third = _node(1, address, tmp_path), _node(2, address, tmp_path)
    exit_code, _, stderr = finish(server)
    assert exit_code == 0, stderr
    assert [finish(node)[0] for node in (first, second, third)] == [0, 0, 0]


def test_a_second_node_of_the_same_number_is_refused(tmp_path: Path) -> None:
    server, address = _server(tmp_path)
    twins = [_node(0, address, tmp_path), _node(0, address, tmp_path)]
    refused = None
    while refused is None:  # one of the two has lost the race to join
        refused = next((twin for twin in twins if twin.poll() is not None), None)
    exit_code, _, stderr = finish(refused)
    assert exit_code == 5
    assert "node 0 has joined already" in stderr
    others = [_node(1, address, tmp_path), _node(2, address, tmp_path)]
    assert finish(server)[0] == 0
    assert [finish(node)[0] for node in (*others, *(twin for twin in twins if twin is not refused))] == [0, 0, 0]


def test_a_model_of_ones_own_must_be_allowed_at_the_node(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    server, address = _server(tmp_path, "--model", "mine:net")
    exit_code, _, stderr = finish(_node(0, address, tmp_path))
    assert exit_code == 2
    assert "start this node with --model mine:net to allow its import" in stderr
    nodes = [start("node", number, "--server", address, "--model", "mine:net", cwd=tmp_path) for number in range(3)]
    exit_code, _, stderr = finish(server)
    assert exit_code == 0, stderr
    assert "node 0 is gone: it failed: the run uses code of its own; start this node with --model mine:net to allow" in stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]
    run = summary("run", *OPTIONS, "--model", "mine:net", "--out", "local", cwd=tmp_path)
    assert run["num_parameters"] == 7850


OWN_DATA = """
import numpy as np
from torch import nn


def blobs(root, train):
    labels = np.arange(90 if train else 30) % 3
    noise = np.random.default_rng(train).normal(size=(len(labels), 2, 4, 4))
    return (noise + labels[:, None, None, None]).astype(np.float32), labels


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
"""


def test_a_data_set_of_ones_own_must_be_allowed_at_the_node_and_gives_the_references_model(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_DATA)
    own = ["--model", "mine:net", "--dataset", "mine:blobs"]
    server, address = _server(tmp_path, *own, "--pe", 0.5)
    exit_code, _, stderr = finish(start("node", 0, "--server", address, "--model", "mine:net", cwd=tmp_path))
    assert exit_code == 2
    assert "start this node with --model mine:net --dataset mine:blobs to allow its import" in stderr
    nodes = [start("node", number, "--server", address, *own, cwd=tmp_path) for number in range(3)]
    assert finish(server)[0] == 0
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]
    run = json.loads((tmp_path / "run" / "summary.json").read_text())
    for command in ("run", "simulate"):
        exit_code, _, stderr = call(command, *OPTIONS, *own, "--partition", "classes:4", cwd=tmp_path)
        assert (exit_code, stderr) == (3, "dncfl: partition = classes:4: the data have 3 classes\n")
        assert summary(command, *OPTIONS, *own, "--pe", 0.5, cwd=tmp_path)["model_sha256"] == run["model_sha256"]
    assert summary("replay", "run", cwd=tmp_path)["matches"]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(last["recall"]) == 3
    assert last["accuracy"] > 0.5


def test_a_node_gives_up_on_a_silent_server(tmp_path: Path) -> None:
    exit_code, _, stderr = call("node", 3, "--fault", "kill:2:1:before-training", cwd=tmp_path)
    assert (exit_code, "does not strike at node 3" in stderr) == (2, True)
    exit_code, _, stderr = call("server", "--fault", "kill:2:1:before-training", cwd=tmp_path)
    assert (exit_code, "must be told where it is started: dncfl node 2 --fault kill:2:1:before-training" in stderr) == (2, True)
    exit_code, _, stderr = call("node", 300, "--server", "127.0.0.1:1", cwd=tmp_path)
    assert exit_code == 2
    assert "300 is not in the range 0<=x<=254" in stderr
    exit_code, _, stderr = call("node", 0, "--server", "127.0.0.1:1", "--patience", 1, *QUIET, cwd=tmp_path)
    assert (exit_code, stderr) == (5, "dncfl: the PS at 127.0.0.1:1 does not answer within 1 s\n")


def test_addresses_that_are_none(tmp_path: Path) -> None:
    for address in ("nonsense", "bad!host:5555", "host:99999"):
        exit_code, _, stderr = call("node", 0, "--server", address, cwd=tmp_path)
        assert exit_code == 5
        assert len(stderr.splitlines()) == 1
        assert address.split(":")[0] in stderr


def test_short_patience_leaves_waiting_nodes_alone(tmp_path: Path) -> None:
    """A node that waits for others longer than the run's patience is not silent."""
    server, address = _server(tmp_path, "--patience", 3)
    nodes = [_node(0, address, tmp_path)]
    time.sleep(7)  # longer than the patience: the wait is the thing under test
    nodes += [_node(1, address, tmp_path), _node(2, address, tmp_path)]
    exit_code, _, stderr = finish(server)
    assert exit_code == 0, stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]


def test_a_stopped_node_is_missed_and_joins_anew_when_it_goes_on(tmp_path: Path) -> None:
    server, address = _server(tmp_path, "--patience", 2)
    nodes = [_node(number, address, tmp_path) for number in (0, 1)]
    _read_until(server, "node 1 has joined")
    nodes[1].send_signal(signal.SIGSTOP)
    _read_until(server, "node 1 is gone: it has been silent for 2 s")
    nodes[1].send_signal(signal.SIGCONT)
    _read_until(server, "node 1 has joined")
    nodes.append(_node(2, address, tmp_path))
    exit_code, _, stderr = finish(server)
    assert exit_code == 0, stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    while text not in (line := process.stderr.readline()):
        assert line, f"{text!r} never came"


def test_nodes_join_a_restarted_server_and_the_model_is_the_same(tmp_path: Path) -> None:
    """The PS is killed in its third round and resumed at the same address; the nodes were never touched."""
    options = ["--rounds", 6, "--pe", 0.4]
    server, address = _server(tmp_path, *options, "--fault", "kill:ps:3:before-decode")
    nodes = [_node(number, address, tmp_path) for number in range(3)]
    assert finish(server)[0] == -signal.SIGKILL
    assert not (tmp_path / "run" / "summary.json").exists()
    exit_code, stdout, stderr = call("server", "--resume", "run", "--bind", address, "--json", cwd=tmp_path)
    assert exit_code == 0, stderr
    assert "going on after round 2 of 6" in stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]
    simulated = summary_here("simulate", *OPTIONS, *options, "--out", "simulated", cwd=tmp_path)
    assert json.loads(stdout)["model_sha256"] == simulated["model_sha256"]
    for name in ("trace.jsonl", "metrics.jsonl"):
        rounds = [json.loads(line)["round"] for line in (tmp_path / "run" / name).read_text().splitlines()]
        assert sorted(set(rounds)) == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "run" / "trace.jsonl").read_text() == (tmp_path / "simulated" / "trace.jsonl").read_text()


def test_nodes_give_up_on_a_server_that_stays_away(tmp_path: Path) -> None:
    server, address = _server(tmp_path)
    nodes = [start("node", number, "--server", address, "--patience", 2, cwd=tmp_path) for number in (0, 1)]
    _read_until(server, "node 1 has joined")
    server.kill()
    server.communicate()
    for node in nodes:
        exit_code, _, stderr = finish(node)
        assert exit_code == 5
        assert "silent for 2 s" in stderr or "does not answer within 2 s" in stderr


def test_an_occupied_port_is_named(tmp_path: Path) -> None:
    server, address = _server(tmp_path)
    exit_code, _, stderr = call("server", "--bind", address, "--out", "other", cwd=tmp_path)
    assert (exit_code, stderr) == (5, f"dncfl: cannot listen at {address}: Address already in use\n")
    assert not (tmp_path / "other").exists()
    server.terminate()
    assert finish(server)[0] == 143


def test_what_a_node_tells_of_a_run(tmp_path: Path) -> None:
    server, address = _server(tmp_path, "--pe", 0)
    nodes = [_node(number, address, tmp_path) for number in range(3)]
    exit_code, stdout, stderr = finish(server)
    assert exit_code == 0, stderr
    assert "lost  " not in stdout
    for number, node in enumerate(nodes):
        exit_code, _, told = finish(node)
        assert exit_code == 0
        assert f"node {number} takes part in a run of 2 rounds of dnc on digits, 3 nodes" in told
        assert len(re.findall(rf"node {number}, round [12], attempt 1: trained in [\d.]+ s, nodes heard: 2", told)) == 2
        assert f"node {number} leaves: all rounds are done" in told


def test_a_node_with_another_model_than_the_ps_is_told(tmp_path: Path) -> None:
    for folder, net in (("ps", "nn.Linear(784, 10)"), ("node", "nn.Linear(784, 10, bias=False), nn.Linear(10, 10)")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            f"from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), {net})\n"
        )
    server, address = _server(tmp_path / "ps", "--model", "mine:net")
    here = start("node", 0, "--server", address, "--model", "mine:net", cwd=tmp_path / "node")
    exit_code, _, stderr = finish(here)
    assert exit_code == 2
    told = "model = mine:net: has 7,950 values in 3 tensors here, and 7,850 in 2 of other sizes at the PS"
    assert told in stderr
    nodes = [start("node", number, "--server", address, "--model", "mine:net", cwd=tmp_path / "ps") for number in range(3)]
    exit_code, _, stderr = finish(server)
    assert exit_code == 0, stderr
    assert f"node 0 is gone: it failed: {told}" in stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]
