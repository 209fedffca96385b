"""Memory over many rounds, and beside a peer that does not read: measured in real processes without training."""

import json
import subprocess
import sys

import numpy as np

ROUNDS = """
import json, os, sys
import psutil
from functools import partial
from dncfl.common.config import load_config
from dncfl.common.faults import parse_faults
from dncfl.common.running import run_until_signal
from dncfl.launch.bench.no_training import NoTraining
from dncfl.launch.bench.untrained import UntestedModel
from dncfl.launch.local import LocalNodes
from dncfl.launch.serving import serve_nodes
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess

rounds, parameters, every = map(int, sys.argv[1:4])
config = load_config(None, {"clients": 4, "rounds": rounds, "pe": 0.2, **json.loads(sys.argv[4])})
samples, warnings = [], []

def nodes_of(process):
    servers = {p.pid for p in process.children()}  # the one that nodes are forked from is among them
    return sorted((p for p in process.children(recursive=True) if p.ppid() in servers), key=lambda p: p.pid)

def record(round_record, attempts, theta):
    if round_record.round % every == 0:
        this = psutil.Process()
        samples.append([p.memory_info().rss / 1e6 for p in (this, *nodes_of(this))])

class Watch(Observer):
    def warning(self, text):
        warnings.append(text)

server = ServerProcess(config, UntestedModel(config, parameters), record, Watch())
run_until_signal(serve_nodes(server, LocalNodes(config, "error", partial(NoTraining, parameters))))
print(json.dumps({"samples": samples, "warnings": warnings}))
"""


def _measure(rounds: int, parameters: int, every: int, **settings: object) -> tuple[list[list[float]], list[str]]:
    """MB of the PS and of each node, sampled every so many rounds; and the PS's warnings."""
    command = [sys.executable, "-c", ROUNDS, str(rounds), str(parameters), str(every), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["samples"], result["warnings"]


def test_memory_does_not_grow_with_the_rounds() -> None:
    """At most 0.01 MB a round at the PS and at each node, over the last three quarters of a thousand rounds."""
    samples, _ = _measure(1000, 2000, 25)
    memory = np.array(samples[10:])
    assert memory.shape == (30, 5)
    slopes = [np.polyfit(25 * np.arange(len(memory)), column, 1)[0] for column in memory.T]
    assert max(slopes) <= 0.01, slopes


def test_a_peer_that_does_not_read_costs_the_others_no_memory() -> None:
    """Node 3 is stopped for longer than the others wait; a round moves 3 million symbols, of which none is queued for it."""
    stop = "stop:3:4:before-training:60"
    samples, warnings = _measure(40, 3_000_000, 1, faults=[stop], patience=8.0, slot_patience=2.0)
    assert any("node 3 is gone" in warning for warning in warnings)
    before, after = np.array(samples[2]), np.array(samples[20:])
    assert after.shape == (20, 5)
    growth = (after - before).max(axis=0)
    assert growth.max() <= 150, growth  # the rounds after the stop are 400 MB of models and 100 of messages, if kept
