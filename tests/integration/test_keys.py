"""Runs with keys: honest nodes notice nothing, and strangers neither join nor hear."""

import asyncio
import re
import socket as system_sockets
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from dncfl.common import wire
from dncfl.common.config import load_config
from dncfl.common.greeting import mechanism_at
from dncfl.common.handshakes import EVENTS
from dncfl.common.keys import KEY_LIST, KeyList, new_folder, secret_path
from dncfl.common.running import run_beside
from dncfl.common.security import Keys
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.node.process import NodeProcess
from dncfl.node.settings import NodeSettings
from dncfl.server.global_model import GlobalModel
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord
from tests.integration.processes import call, finish, read_until, start, summary

OPTIONS = ["--clients", 3, "--rounds", 2, "--local-epochs", 1, "--pe", 0.4]
QUIET = ["--log-level", "warning"]
SECONDS_TO_TELL = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder(tmp_path / "keys", 3)
    return tmp_path / "keys"


def _server(tmp_path: Path, *options: object) -> tuple[subprocess.Popen[str], str]:
    """A PS on a free port, and the address that it announces."""
    server = start("server", *OPTIONS, *options, "--bind", "127.0.0.1:0", "--out", "run", "--json", cwd=tmp_path)
    assert server.stderr is not None
    announced = re.search(r"--server (127\.0\.0\.1:\d+)( --keys FOLDER)?", server.stderr.readline())
    assert announced is not None
    assert bool(announced[2]) == ("--keys" in options)
    return server, announced[1]


def _stranger(folder: Path, server: str, pairs: Sequence[tuple[bytes, bytes]], number: int) -> None:
    """A folder of keys that somebody made up: node `number` has the last of the pairs."""
    folder.mkdir()
    names = ["0", "1", "2"]
    names[number], names[-1] = names[-1], names[number]
    KeyList({"ps": server} | {name: public.decode() for name, (public, _) in zip(names, pairs, strict=True)}).save(folder)
    path = secret_path(folder, str(number))
    path.touch(mode=0o600)
    path.write_bytes(pairs[-1][1])


def _pair(folder: Path, name: str) -> tuple[bytes, bytes]:
    keys = Keys.load(folder, name)
    return keys.listed.of(name).encode(), keys.secret.encode()


def _turned_away(tmp_path: Path, address: str, *options: object) -> tuple[tuple[int, str], float]:
    """How a node 0 that asks to join ends: its exit code with its last line, and the seconds since it asked."""
    with start("node", 0, "--server", address, *options, cwd=tmp_path) as process:
        read_until(process, "(asks) the PS")
        asked = time.monotonic()
        assert process.stderr is not None
        *before, words = process.stderr.read().splitlines()
        assert all("no answer within 2 s" in line for line in before)
        return (process.wait(), words), time.monotonic() - asked


def test_strangers_are_told_so_and_the_run_gives_the_model_it_gives_without_keys(tmp_path: Path, folder: Path) -> None:
    listed = KeyList.load(folder)
    new = zmq.curve_keypair
    _stranger(tmp_path / "unknown", listed.of("ps"), [new(), new(), new()], 0)
    _stranger(tmp_path / "wrong_number", listed.of("ps"), [new(), new(), _pair(folder, "1")], 0)
    _stranger(tmp_path / "wrong_server", new()[0].decode(), [new(), new(), _pair(folder, "0")], 0)
    server, address = _server(tmp_path, "--keys", folder)
    nodes = [start("node", m, "--server", address, "--keys", folder, cwd=tmp_path) for m in (1, 2)]
    expected = {
        ("--keys", "unknown"): (13, f"dncfl: {address} does not admit this key: it must be in the list of keys there"),
        ("--keys", "wrong_number"): (5, "dncfl: the PS refused node 0: the key is not that of node 0"),
        ("--keys", "wrong_server"): (
            13,
            f"dncfl: {address} has another key than the list of keys says here",
        ),
        (): (13, f"dncfl: {address} admits only those who have a key; give --keys FOLDER"),
    }
    for options, outcome in expected.items():
        ended, seconds = _turned_away(tmp_path, address, *options)
        assert ended == outcome
        assert seconds < SECONDS_TO_TELL
    nodes.append(start("node", 0, "--server", address, "--keys", folder, cwd=tmp_path))
    exit_code, stdout, stderr = finish(server)
    assert exit_code == 0, stderr
    assert [finish(node)[0] for node in nodes] == [0, 0, 0]
    without = summary("run", *OPTIONS, "--out", "without", cwd=tmp_path)
    assert f'"model_sha256": "{without["model_sha256"]}"' in stdout


def test_a_node_with_keys_refuses_a_server_without(tmp_path: Path, folder: Path) -> None:
    server, address = _server(tmp_path)
    (exit_code, words), _ = _turned_away(tmp_path, address, "--keys", folder)
    why = f"dncfl: {address} uses no keys, so that anybody may be there; give --keys there, or leave it out here"
    assert (exit_code, words) == (13, why)
    server.terminate()
    assert finish(server)[0] == 143


def test_a_node_with_keys_waits_for_a_server_that_is_not_there_yet(tmp_path: Path, folder: Path) -> None:
    exit_code, _, stderr = call("node", 0, "--server", "127.0.0.1:1", "--keys", folder, "--patience", 6, *QUIET, cwd=tmp_path)
    assert (exit_code, stderr) == (5, "dncfl: the PS at 127.0.0.1:1 does not answer within 6 s\n")


def test_listening_beyond_this_machine_needs_keys_or_a_word(tmp_path: Path) -> None:
    reason = "anybody who reaches 0.0.0.0 could take part: give --keys FOLDER"
    exit_code, _, stderr = call("server", *OPTIONS, "--bind", "0.0.0.0:0", "--out", "run", cwd=tmp_path)
    assert exit_code == 2
    assert reason in stderr
    assert not (tmp_path / "run").exists()
    exit_code, _, stderr = call("node", 0, "--host", "0.0.0.0", "--server", "127.0.0.1:1", cwd=tmp_path)
    assert exit_code == 2
    assert reason in stderr
    allowed = ("node", 0, "--host", "0.0.0.0", "--server", "127.0.0.1:1", "--insecure", "--patience", 0.5)
    assert call(*allowed, cwd=tmp_path)[0] == 5  # nobody is there


def test_a_missing_key_is_named_before_anything_starts(tmp_path: Path, folder: Path) -> None:
    (folder / KEY_LIST).unlink()
    for command in (("server", *OPTIONS), ("node", 0)):
        exit_code, _, stderr = call(*command, "--keys", folder, cwd=tmp_path)
        assert exit_code == 2
        assert f"cannot read {folder / KEY_LIST}: No such file or directory" in stderr


def _stranger_socket(
    context: zmq.asyncio.Context, kind: int, server_key: str, pair: tuple[bytes, bytes] | None
) -> zmq.asyncio.Socket:
    """A socket of somebody's own making."""
    socket = context.socket(kind)
    socket.linger = 0
    if pair is not None:
        socket.curve_publickey, socket.curve_secretkey = pair
        socket.curve_serverkey = server_key.encode()
    return socket


class Ear:
    """A SUB socket of somebody else's, which counts what it hears."""

    def __init__(self, context: zmq.asyncio.Context, server_key: str, pair: tuple[bytes, bytes] | None) -> None:
        self._socket = _stranger_socket(context, zmq.SUB, server_key, pair)
        self._socket.subscribe(b"")
        self._monitor = self._socket.get_monitor_socket(EVENTS & ~zmq.Event.CLOSED)
        self.count = 0

    async def knock(self, port: int) -> zmq.Event:
        """What becomes of the first handshake that is answered."""
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        return zmq.Event((await recv_monitor_message(self._monitor))["event"])

    async def listen(self) -> None:
        while True:
            await self._socket.recv_multipart()
            self.count += 1

    def close(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()


def _free_port() -> int:
    with system_sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Run:
    """A run of three nodes in this process, under the keys in a folder."""

    def __init__(self, folder: Path) -> None:
        config = load_config(None, {"clients": 3, "rounds": 3, "local_epochs": 1, "patience": 20})
        self.rounds_done = 0
        self.server = ServerProcess(config, GlobalModel(config), self._record, Observer(), Keys.load(folder, "ps"))
        self._folder = folder

    def _record(self, record: RoundRecord, attempts: Sequence[AttemptTrace], theta: Vector) -> None:
        self.rounds_done += 1

    async def serve(self) -> None:
        await asyncio.wait_for(self.server.serve(), 60)

    async def node(self, number: int, server_port: int, port: int | None = None) -> None:
        keys = Keys.load(self._folder, number)
        settings = NodeSettings(node=number, server_host="127.0.0.1", server_port=server_port, port=port, security=keys)
        await NodeProcess(settings).run()


def test_a_stranger_hears_nothing_where_a_listed_one_hears_all(folder: Path) -> None:
    """Ears at the downlink and at node 0's uplink, before the rounds: without a key, with an unknown one, with node 1's."""
    run, listed = Run(folder), KeyList.load(folder)
    pairs = {"no key": None, "unknown": zmq.curve_keypair(), "listed": _pair(folder, "1")}
    outcomes = {
        "no key": {zmq.Event.HANDSHAKE_FAILED_PROTOCOL, zmq.Event.HANDSHAKE_FAILED_NO_DETAIL},  # whoever hangs up first
        "unknown": {zmq.Event.HANDSHAKE_FAILED_AUTH},
        "listed": {zmq.Event.HANDSHAKE_SUCCEEDED},
    }
    ports = {"ps": _free_port(), "0": _free_port()}

    async def main() -> None:
        with run.server.listening("127.0.0.1", downlink_port=ports["ps"]) as port, zmq.asyncio.Context() as context:
            ears = {(whose, at): Ear(context, listed.of(at), pairs[whose]) for whose in pairs for at in ports}

            async def others() -> None:
                for (whose, at), ear in ears.items():
                    assert await ear.knock(ports[at]) in outcomes[whose]
                    assert await mechanism_at("127.0.0.1", ports[at]) == "CURVE"
                await asyncio.gather(run.node(1, port), run.node(2, port))

            try:
                await run_beside(run.serve(), run.node(0, port, ports["0"]), others(), *(ear.listen() for ear in ears.values()))
            finally:
                for ear in ears.values():
                    ear.close()
        assert run.rounds_done == 3
        assert run.server.counts == {"rejected_frames": 0, "damaged_frames": 0, "stale_frames": 0}
        for (whose, _), ear in ears.items():
            assert (ear.count > 0) == (whose == "listed")

    asyncio.run(main())


def test_a_listed_key_speaks_for_its_own_node_only(folder: Path) -> None:
    """Whoever has node 1's key says this and that as node 0."""
    run = Run(folder)
    lies = [
        wire.Connected(node=0, edition=1),
        wire.Failed(node=0, reason="not me"),
        wire.Join(node=0, incarnation=1, host="127.0.0.1", port=1),
    ]

    async def main() -> None:
        with run.server.listening("127.0.0.1") as port, zmq.asyncio.Context() as context:
            liar = _stranger_socket(context, zmq.DEALER, KeyList.load(folder).of("ps"), _pair(folder, "1"))
            liar.connect(f"tcp://127.0.0.1:{port}")
            for lie in lies:
                await liar.send(wire.encode(lie))

            async def nodes() -> None:
                answer = wire.decode(await liar.recv(), wire.FROM_SERVER)
                assert answer == wire.Refused(reason="the key is not that of node 0")
                await asyncio.gather(*(run.node(m, port) for m in range(3)))

            try:
                await asyncio.gather(run.serve(), nodes())
            finally:
                liar.close()
        assert run.rounds_done == 3
        assert run.server.counts == {"rejected_frames": 3, "damaged_frames": 0, "stale_frames": 0}

    asyncio.run(main())
