"""The PS's callbacks without sockets: what strangers and late nodes say."""

from time import monotonic
from typing import Any

import pytest

from dncfl.common import wire
from dncfl.common.config import load_config
from dncfl.server import actions, events
from dncfl.server.global_model import GlobalModel
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess

CONFIG = load_config(None, {"clients": 3, "rounds": 2})


class Sent:
    """Stands for the sockets that the PS listens at."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, wire.FromServer]] = []

    @staticmethod
    def is_from(_: int) -> bool:
        return True

    def connect(self, *_: object) -> None:
        """Nobody is there."""

    def send(self, address: bytes, header: bytes, *_: bytes) -> None:
        self.headers.append((address, wire.decode(header, wire.FROM_SERVER)))


@pytest.fixture
def sockets() -> Sent:
    return Sent()


@pytest.fixture
def server(sockets: Sent) -> ServerProcess:
    """A PS that node 0 has joined."""
    server = ServerProcess(CONFIG, GlobalModel(CONFIG), lambda *_: None, Observer())
    server._control = server._downlink = server._uplink = sockets  # type: ignore[assignment]  # a stand-in
    server._downlink_port = 1
    _says(server, b"first", wire.Join(node=0, incarnation=5, host="127.0.0.1", port=1))
    _handle(server)
    return server


def _says(server: ServerProcess, address: bytes, header: wire.Header) -> None:
    server._take_control([address, wire.encode(header)])


def _handle(server: ServerProcess) -> list[actions.Action]:
    """Perform all that the events lead to."""
    done: list[Any] = []
    while not server._events.empty():
        done += server._protocol.handle(server._events.get_nowait())
    for action in done:
        with pytest.raises(StopIteration):
            server._perform(action).send(None)
    return done


def test_a_node_may_speak_between_being_given_up_and_being_dismissed(server: ServerProcess, sockets: Sent) -> None:
    """So long as the PS closes a round, it handles no event."""
    [(node, reason)] = server._liveness.gone(monotonic() + CONFIG.patience + 1)
    server._events.put_nowait(events.NodeGone(node, reason))
    _says(server, b"first", wire.Alive(busy=True))
    _says(server, b"first", wire.TrainingFailed(node=0, round=1, reason=""))
    assert [type(action) for action in _handle(server)] == [actions.Dismiss]
    _says(server, b"first", wire.Alive())
    assert sockets.headers[-1] == (b"first", wire.Rejoin())


def test_what_a_broken_connection_has_lost_is_said_again(server: ServerProcess, sockets: Sent) -> None:
    sent = sockets.headers
    _says(server, b"first", wire.Join(node=0, incarnation=5, host="127.0.0.1", port=1))
    _handle(server)
    assert [header.kind for _, header in sent] == ["welcome", "welcome"]
    _says(server, b"first", wire.Loaded(node=0))
    _says(server, b"first", wire.Join(node=0, incarnation=5, host="127.0.0.1", port=1))  # it was on its way
    for node, address in (1, b"second"), (2, b"third"):
        _says(server, address, wire.Join(node=node, incarnation=5 + node, host="127.0.0.1", port=1 + node))
        _handle(server)
        _says(server, address, wire.Loaded(node=node))
    _says(server, b"first", wire.Alive())
    _handle(server)
    peers = sent[-1][1]
    assert isinstance(peers, wire.Peers)
    assert [address for address, header in sent if header == peers] == [b"first", b"second", b"third"]
    assert [header.kind for _, header in sent].count("welcome") == 4
    for edition, times in (0, 2), (peers.edition, 2):
        _says(server, b"first", wire.Alive(edition=edition))
        assert sent.count((b"first", peers)) == times


def test_one_life_has_one_address(server: ServerProcess, sockets: Sent) -> None:
    """A node's number and life under another address would be left behind when the node goes."""
    _says(server, b"other", wire.Join(node=0, incarnation=5, host="127.0.0.1", port=1))
    assert _handle(server) == []
    _says(server, b"other", wire.Alive())
    assert sockets.headers[-1] == (b"other", wire.Rejoin())


def test_one_address_is_one_node(server: ServerProcess) -> None:
    _says(server, b"first", wire.Join(node=1, incarnation=5, host="127.0.0.1", port=1))
    assert _handle(server) == []
    assert server.counts["rejected_frames"] == 1
    assert server._nodes_by_address == {b"first": 0}


def test_subscriptions_to_what_there_is_not_are_counted(server: ServerProcess) -> None:
    for subscription in (b"", b"\x01A", b"\x01U", b"\x02D", b"\x01~0", b"\x01~0.5x", b"\x01~1000.5"):
        server._take_subscription([subscription])
    server._take_subscription([b"\x01D", b"and more"])
    assert server.counts["rejected_frames"] == 8
    for subscription in (b"\x01", b"\x01D", b"\x01~0.5", b"\x00~0.5"):
        server._take_subscription([subscription])
    assert server.counts["rejected_frames"] == 8
    assert server._events.get_nowait() == events.DownlinkHeard(0, 5)
    assert server._events.empty()
