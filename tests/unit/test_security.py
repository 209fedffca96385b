"""Sockets with keys over the loopback: who enters, what passes, and that nothing is left."""

import asyncio
import socket as system_sockets
from pathlib import Path

import pytest
import zmq

from dncfl.common import sockets
from dncfl.common.errors import AccessDenied, ConfigError
from dncfl.common.handshakes import ENOUGH
from dncfl.common.keys import new_folder
from dncfl.common.payload import Buffer
from dncfl.common.running import run_beside
from dncfl.common.security import NO_KEYS, Keys, NoKeys, Security, is_loopback
from dncfl.common.sockets import MAX_CONTROL_FRAME, Socket

HOST = "127.0.0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder(tmp_path / "keys", 3)
    return tmp_path / "keys"


async def _next(socket: Socket) -> list[Buffer]:
    """The next message of a socket."""
    messages: asyncio.Queue[list[Buffer]] = asyncio.Queue()
    return await run_beside(messages.get(), socket.read(messages.put_nowait))


@pytest.mark.parametrize("size", [10, MAX_CONTROL_FRAME, 3 * MAX_CONTROL_FRAME])
@pytest.mark.parametrize("with_keys", [False, True])
def test_frames_of_the_size_that_is_expected_pass(folder: Path, size: int, with_keys: bool) -> None:
    async def main() -> None:
        publisher, subscriber = (Keys.load(folder, 0), Keys.load(folder, "ps")) if with_keys else (NO_KEYS, NO_KEYS)
        with publisher.context() as there, subscriber.context() as here:
            uplink, ears = Socket(there, zmq.XPUB, publisher), Socket(here, zmq.SUB, subscriber)
            ears.expect_frames_of(size)
            ears.connect(HOST, uplink.bind(HOST, None), 0)
            ears.subscribe(b"U")
            assert await _next(uplink) == [b"\x01U"]
            uplink.send(b"U", b"header", bytes(size))
            assert len((await _next(ears))[2]) == size

    asyncio.run(main())


def test_a_port_of_this_machine_by_its_name() -> None:
    async def main() -> None:
        with NO_KEYS.context() as context:
            uplink, ears = Socket(context, zmq.XPUB, NO_KEYS), Socket(context, zmq.SUB, NO_KEYS)
            ears.connect("localhost", uplink.bind("localhost", None), 0)
            ears.subscribe(b"U")
            assert await _next(uplink) == [b"\x01U"]

    asyncio.run(main())


def test_a_larger_frame_ends_the_connection(folder: Path) -> None:
    async def main() -> None:
        publisher, subscriber = Keys.load(folder, 0), Keys.load(folder, "ps")
        with publisher.context() as there, subscriber.context() as here:
            uplink, ears = Socket(there, zmq.XPUB, publisher), Socket(here, zmq.SUB, subscriber)
            ears.connect(HOST, uplink.bind(HOST, None), 0)
            ears.subscribe(b"U")
            assert await _next(uplink) == [b"\x01U"]
            uplink.send(b"U", b"header", bytes(MAX_CONTROL_FRAME + 1))
            assert await _next(uplink) == [b"\x00U"]

    asyncio.run(main())


def test_nobody_poses_as_a_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The PS looks for nodes 0 and 1 at two addresses, and node 2 is at both: it is heard at neither, only as itself."""
    monkeypatch.setattr("dncfl.common.handshakes.PATIENCE_SECONDS", 0.1)

    async def main() -> None:
        impostor, server = Keys.load(folder, 2), Keys.load(folder, "ps")
        with impostor.context() as there, server.context() as here:
            uplinks = [Socket(there, zmq.XPUB, impostor) for _ in range(3)]
            ears = Socket(here, zmq.SUB, server)
            for node, uplink in enumerate(uplinks):
                ears.connect(HOST, uplink.bind(HOST, None), node)
            ears.subscribe(b"U")
            messages: asyncio.Queue[list[Buffer]] = asyncio.Queue()
            warnings: asyncio.Queue[str] = asyncio.Queue()
            monkeypatch.setattr(sockets.log, "warning", lambda _, error: warnings.put_nowait(str(error)))

            async def all_heard() -> None:
                assert await _next(uplinks[2]) == [b"\x01U"]
                places = set[str]()
                while len(places) < 2:
                    place, _, reason = (await warnings.get()).partition(" ")
                    assert reason.startswith("has another key than the list of keys says here")
                    places.add(place)
                for node, uplink in enumerate(uplinks):
                    uplink.send(b"U", b"%d" % node)
                assert await messages.get() == [b"U", b"2"]
                assert messages.empty()

            await asyncio.wait_for(run_beside(all_heard(), ears.read(messages.put_nowait)), 30)

    asyncio.run(main())


@pytest.mark.parametrize(("mechanism", "reason"), [(b"NULL", "uses no keys"), (b"CURVE", "admits only those who have a key")])
def test_who_always_hangs_up_first_is_asked_why(
    folder: Path, mechanism: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before ZeroMQ has read what it wants, as happens where both sides refuse."""
    monkeypatch.setattr("dncfl.common.handshakes.PATIENCE_SECONDS", 0.1)
    signature, version = b"\xff\0\0\0\0\0\0\0\x01\x7f", b"\x03\x01"
    hung_up: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(64)
        if first == signature:  # ZeroMQ says the rest when it has ours
            hung_up.append(first)
        else:
            writer.write(signature + version + mechanism.ljust(20, b"\0"))
        writer.close()

    async def main() -> None:
        security: Security = Keys.load(folder, 0) if mechanism == b"NULL" else NO_KEYS
        async with await asyncio.start_server(answer, HOST, 0) as server:
            with security.context() as context:
                node = Socket(context, zmq.DEALER, security)
                node.connect(HOST, server.sockets[0].getsockname()[1], "ps")
                with pytest.raises(AccessDenied, match=reason):
                    await asyncio.wait_for(node.read(lambda _: None), 30)
        assert len(hung_up) >= ENOUGH

    asyncio.run(main())


def test_without_an_authenticator_nobody_enters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dncfl.common.handshakes.PATIENCE_SECONDS", 0.1)

    async def main() -> None:
        keys, own = Keys.load(folder, "ps"), Keys.load(folder, 0)
        with NO_KEYS.context() as context, own.context() as there:  # the first has no doorkeeper
            control, node = Socket(context, zmq.ROUTER, keys), Socket(there, zmq.DEALER, own)
            node.connect(HOST, control.bind(HOST, None), "ps")
            node.send(b"hello")
            messages: asyncio.Queue[list[Buffer]] = asyncio.Queue()
            with pytest.raises(AccessDenied):
                await run_beside(node.read(messages.put_nowait), control.read(messages.put_nowait))
            assert messages.empty()

    asyncio.run(main())


@pytest.mark.parametrize("first_words", [b"", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01CURVE".ljust(64, b"\0")])
def test_a_handshake_that_stalls_is_dropped(folder: Path, first_words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 200)
    keys = Keys.load(folder, "ps")
    with keys.context() as context:
        control = Socket(context, zmq.ROUTER, keys)
        port = control.bind(HOST, None)
        with system_sockets.create_connection((HOST, port), timeout=10) as stranger:
            stranger.sendall(first_words)
            while stranger.recv(1024):  # the greeting, and then the end
                pass


def test_a_peer_that_is_not_listed_is_named(folder: Path) -> None:
    keys = Keys.load(folder, 0)
    with keys.context() as context:
        ears = Socket(context, zmq.SUB, keys)
        with pytest.raises(ConfigError, match=r"keys\.toml lists no key for node 7"):
            ears.connect(HOST, 1, 7)


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "192.0.2.1", "eth0", "localhost.example.org"])
def test_without_keys_only_this_machine_may_connect(host: str, folder: Path) -> None:
    assert not is_loopback(host)

    def bind(security: Security, host: str) -> None:
        with security.context() as context, context.socket(zmq.XPUB) as socket:
            security.before_binding(socket, host)

    for allowed in ("127.0.0.1", "127.8.9.1", "::1", "localhost"):
        bind(NO_KEYS, allowed)
    with pytest.raises(ConfigError, match=r"could take part: give --keys FOLDER .* or --insecure"):
        bind(NO_KEYS, host)
    bind(NoKeys(insecure=True), host)
    bind(Keys.load(folder, 0), host)
