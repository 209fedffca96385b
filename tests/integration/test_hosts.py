"""Hosts of their own: network namespaces on a virtual switch, one for the PS and one for each node.

Each host has an address of its own, its own ports and its own cable, which can be pulled at the switch.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import call, finish, read_until, start, summary

CLIENTS = 3
FAULTY = 2
"""The node whose cable is pulled."""

SERVER = CLIENTS
ROUNDS = 30
OPTIONS = ["--clients", CLIENTS, "--rounds", ROUNDS, "--local-epochs", 1, "--pe", 0.2, "--patience", 4, "--slot-patience", 1]
MODEL = ["--model", "paced:Net"]
PACED = """
import os, time
from torch import nn
class Net(nn.Module):
    def __init__(self): super().__init__(); self.linear = nn.Linear(784, 10)
    def forward(self, x):
        if self.training: time.sleep(float(os.environ.get("PACE", 0)))
        return self.linear(x.flatten(1))
"""
"""A model whose training takes time but no processor: rounds take as long on any machine, and a replay takes none."""


class Hosts:
    """Namespaces 0..M-1 for the nodes and M for the PS, each with one cable to a switch in a namespace of its own."""

    def __init__(self) -> None:
        self._prefix = f"dncfl{os.getpid()}-"
        self._switch = f"{self._prefix}switch"
        self._made: list[str] = []

    def make(self) -> None:
        """Raises CalledProcessError where the system does not allow it."""
        self._add(self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for host in range(CLIENTS + 1):
            name = self._name(host)
            self._add(name)
            _ip("-n", self._switch, "link", "add", f"port{host}", "type", "veth", "peer", "name", "cable", "netns", name)
            _ip("-n", self._switch, "link", "set", f"port{host}", "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in reversed(self._made):
            _ip("netns", "delete", name)

    def _add(self, name: str) -> None:
        _ip("netns", "add", name)
        self._made.append(name)

    def _name(self, host: int) -> str:
        return f"{self._prefix}{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"10.213.0.{host + 1}"

    def on(self, host: int) -> list[str]:
        """The command that runs another one on a host."""
        return ["ip", "netns", "exec", self._name(host)]

    def pull_cable(self, host: int) -> None:
        _ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def plug_in_cable(self, host: int) -> None:
        _ip("-n", self._switch, "link", "set", f"port{host}", "up")

    def reaches(self, host: int, other: int) -> bool:
        """Whether something comes back from another host's control port, be it a refusal."""
        probe = f"import socket; socket.create_connection(({self.address(other)!r}, 9), 1)"
        done = subprocess.run([*self.on(host), "python3", "-c", probe], capture_output=True, text=True, check=False)
        return "ConnectionRefusedError" in done.stderr


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("hosts need the command ip, of iproute2")
    hosts = Hosts()
    try:
        try:
            hosts.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"hosts need network namespaces, which this system does not allow: {error.stderr.strip()}")
        yield hosts
    finally:
        hosts.remove()


@pytest.mark.parametrize("protection", ["--insecure", "--keys"])
def test_a_pulled_cable_costs_what_it_carried_and_no_more(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str
) -> None:
    (tmp_path / "paced.py").write_text(PACED)
    protected: list[object] = [protection]
    if protection == "--keys":
        assert call("keys", "new", "keys", "--clients", CLIENTS, cwd=tmp_path)[0] == 0
        protected.append("keys")
    address = f"{hosts.address(SERVER)}:5555"
    assert hosts.reaches(FAULTY, SERVER)
    monkeypatch.setenv("PACE", "0.02")
    processes: list[subprocess.Popen[str]] = []
    try:
        options = [*OPTIONS, *MODEL, *protected, "--bind", address, "--out", "run", "--log-level", "info"]
        server = start("server", *options, cwd=tmp_path, within=hosts.on(SERVER))
        processes.append(server)
        read_until(server, f"--server ({address})")
        joining = ["--server", address, *MODEL, *protected]
        processes += [start("node", m, *joining, cwd=tmp_path, within=hosts.on(m)) for m in range(CLIENTS)]
        read_until(server, "round (3) starts")
        hosts.pull_cable(FAULTY)
        read_until(server, f"node {FAULTY} (did not report|is gone)")  # the latter where it was training
        assert not hosts.reaches(FAULTY, SERVER)
        hosts.plug_in_cable(FAULTY)
        for process in processes:
            exit_code, _, stderr = finish(process)
            assert exit_code == 0, stderr
    finally:
        for process in processes:
            process.kill()  # those that are left
            process.communicate()
    monkeypatch.delenv("PACE")
    lost = [json.loads(line)["lost_links"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lost) == ROUNDS
    assert any(lost)
    assert all(str(FAULTY) in link.split("->") for each in lost for link in each)
    assert lost[0] == lost[-1] == {}  # it takes part again
    replayed = summary("replay", "run", "--out", "replayed", cwd=tmp_path)
    assert replayed["matches"]
