"""The wire format: what is said arrives, all else is refused."""

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dncfl.common import wire
from dncfl.common.errors import WireError

HEADERS_OF_NODES = [
    wire.Join(node=3, incarnation=2**62, host="127.0.0.1", port=5555),
    wire.Loaded(node=254),
    wire.Connected(node=0, edition=3),
    wire.Alive(busy=True, progress=12),
    wire.TrainingFailed(node=1, round=4, reason="no memory"),
    wire.Report(
        node=1,
        round=2,
        attempt=1,
        heard="d-e",
        train_seconds=1.5,
        encode_seconds=0.0,
        train_loss=2.3,
        num_clipped=0,
        bytes_from_peers=12,
    ),
    wire.Failed(node=2, reason="out of memory"),
]
TRANSMISSION = wire.Transmission(sender=1, incarnation=9, round=3, attempt=1, slot=2, messages=(0, 1))


@pytest.mark.parametrize("header", HEADERS_OF_NODES, ids=lambda header: header.kind)
def test_what_a_node_says_arrives(header: wire.FromNode) -> None:
    assert wire.decode(wire.encode(header), wire.FROM_NODE) == header


@pytest.mark.parametrize(
    "header",
    [
        wire.Welcome(downlink_port=1),
        wire.Refused(reason="no"),
        wire.Rejoin(),
        wire.Ping(),
        wire.Peers(edition=1, nodes=(0, 2), incarnations=(5, 6), hosts=("127.0.0.1", "lab-3.example.org"), ports=(1, 2)),
        wire.Stop(completed=True, reason="done"),
    ],
    ids=lambda header: header.kind,
)
def test_what_the_server_says_arrives(header: wire.FromServer) -> None:
    assert wire.decode(wire.encode(header), wire.FROM_SERVER) == header
    with pytest.raises(WireError):
        wire.decode(wire.encode(header), wire.FROM_NODE)


@pytest.mark.parametrize(
    "change",
    [
        {"round": 0},
        {"round": 2**32},
        {"round": "1"},
        {"round": 1.0},
        {"slot": 256},
        {"sender": -1},
        {"sender": 255},
        {"messages": []},
        {"messages": [0] * 256},
        {"messages": [300]},
        {"version": 1},
        {"incarnation": 0},
        {"incarnation": 2**63},
        {"kind": "join"},
        {"more": 1},
        {"sender": None},
    ],
    ids=str,
)
def test_fields_outside_their_limits_are_refused(change: dict[str, object]) -> None:
    frame = msgpack.packb(TRANSMISSION.model_dump() | change)
    with pytest.raises(WireError):
        wire.decode(frame, wire.TRANSMISSION)


@pytest.mark.parametrize("change", [{"host": "a!b"}, {"host": ""}, {"host": "a b"}, {"port": 0}, {"port": 99_999}], ids=str)
def test_addresses_that_are_none_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(WireError):
        wire.decode(msgpack.packb(HEADERS_OF_NODES[0].model_dump() | change), wire.FROM_NODE)


def test_a_missing_field_is_refused() -> None:
    fields = TRANSMISSION.model_dump()
    del fields["slot"]
    with pytest.raises(WireError, match="slot"):
        wire.decode(msgpack.packb(fields), wire.TRANSMISSION)


def test_a_list_of_peers_whose_columns_do_not_fit_is_refused() -> None:
    peers = wire.Peers(edition=1, nodes=(0, 2), incarnations=(5, 6), hosts=("a", "b"), ports=(1, 2))
    assert peers.members == {0: (5, "a", 1), 2: (6, "b", 2)}
    for change in ({"nodes": (0,)}, {"nodes": (0, 0)}, {"ports": (1, 2, 3)}):
        with pytest.raises(WireError, match="do not fit"):
            assert peers.model_copy(update=change).members


@settings(max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.text(max_size=5)
            | st.floats()
            | st.binary(max_size=5),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        ).map(msgpack.packb),
    )
)
def test_junk_is_refused(frame: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(frame, wire.FROM_NODE)


def test_a_header_too_large_is_refused_unread() -> None:
    with pytest.raises(WireError, match="at most"):
        wire.decode(b"\xc0" * (wire.MAX_HEADER + 1), wire.FROM_NODE)


@pytest.mark.parametrize(
    "change",
    [{"sender": 4}, {"messages": (0, 4)}, {"slot": 5}, {"slot": 1, "messages": (0, 1)}, {"slot": 1, "messages": (0,)}],
    ids=str,
)
def test_transmissions_that_the_run_does_not_have_are_refused(change: dict[str, object]) -> None:
    TRANSMISSION.check(num_clients=4, last_slot=4)
    with pytest.raises(WireError):
        TRANSMISSION.model_copy(update=change).check(num_clients=4, last_slot=4)


@pytest.mark.parametrize("other", [wire.TOPIC_MESSAGE, wire.TOPIC_CODEWORD, wire.TOPIC_DOWNLINK])
def test_ready_topics_sort_last_and_are_no_prefix_of_others(other: bytes) -> None:
    assert all(wire.ready_topic(subscriber) > other for subscriber in (0, 254, wire.SERVER_NAME))
    assert not other.startswith(wire.ready_topic(0)[:1])
