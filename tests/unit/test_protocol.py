"""Both sides of the protocol without sockets: whatever the order of arrival, the outcome is the reference's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dncfl.common.channel import Outcome
from dncfl.common.config import load_config
from dncfl.common.errors import ProtocolError
from dncfl.common.payload import Payload
from dncfl.common.scheme import channel, network_code
from dncfl.launch.reference import Communication
from dncfl.node import protocol as node_side
from dncfl.node.protocol import NodeProtocol
from dncfl.node.trainer import LocalUpdate
from dncfl.server import protocol as server_side
from dncfl.server.protocol import ServerProtocol
from tests.unit.ether import Ether, message_of


@settings(max_examples=60, deadline=None)
@given(
    clients=st.sampled_from([2, 3, 5, 8]),
    pe=st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]),
    method=st.sampled_from(["dnc", "qfl", "nonanonymous", "anonymous"]),
    decode=st.sampled_from(["all-heard", "partial"]),
    relay_slots=st.sampled_from([None, 0, 1]),
    early_stop=st.booleans(),
    seed=st.integers(0, 1000),
    order=st.integers(0, 2**32),
)
def test_any_order_of_arrival_gives_the_references_outcome(
    clients: int, pe: float, method: str, decode: str, relay_slots: int | None, early_stop: bool, seed: int, order: int
) -> None:
    settings: dict[str, object] = {} if relay_slots is None else {"relay_slots": relay_slots}
    settings |= {"clients": clients, "pe": pe, "method": method, "decode": decode, "seed": seed, "rounds": 3}
    config = load_config(None, settings | {"max_attempts": 3, "early_stop": early_stop})
    ether = Ether(config, channel(config), np.random.default_rng(order))
    ether.run()
    assert ether.finished
    assert [action.round for action in ether.closed] == [1, 2, 3]
    for action in ether.closed:
        expected = Communication(config, channel(config), action.round)
        while expected.attempt == 0 or expected.must_repeat:
            expected.repeat()
        assert list(action.attempts) == expected.traces
        assert action.decoder.rank == expected.rank
        assert action.direct == tuple(np.flatnonzero(expected.direct))
        messages = action.decoder.messages()
        assert tuple(messages) == expected.recovered
        assert all(np.array_equal(messages[m].symbols, message_of(config, m, action.round).symbols) for m in messages)
    assert ether.server.num_stale == 0
    assert all(node.num_stale == 0 for node in ether.nodes)


def test_bad_links_make_repeats_and_earlier_arrivals_count() -> None:
    """At P_e = 0.8 a round of three nodes needs several attempts, and gets more than the last of them alone would give."""
    config = load_config(None, {"clients": 3, "pe": 0.8, "rounds": 30, "seed": 1})
    ether = Ether(config, channel(config), np.random.default_rng(0))
    ether.run()
    repeated = [action for action in ether.closed if len(action.attempts) > 1]
    assert repeated
    gained = 0
    for action in repeated:
        last = action.attempts[-1]
        arrived_last = sum(row.count("d") for row in last.relay) + sum(row[-1] == "d" for row in last.slot1)
        gained += action.decoder.rank > arrived_last
    assert gained


@settings(max_examples=60, deadline=None)
@given(
    clients=st.sampled_from([2, 3, 5, 8]),
    pe=st.sampled_from([0.1, 0.3, 0.6, 0.9]),
    decode=st.sampled_from(["all-heard", "partial"]),
    seed=st.integers(0, 10_000),
)
def test_early_stop_never_changes_what_is_recovered(clients: int, pe: float, decode: str, seed: int) -> None:
    """Both schedules meet the same channel; the short one ends at the same messages, after the same attempts."""
    outcomes = []
    for early_stop in (True, False):
        values = {"clients": clients, "pe": pe, "decode": decode, "seed": seed, "max_attempts": 4, "early_stop": early_stop}
        config = load_config(None, values)
        outcome = Communication(config, channel(config), 1)
        while outcome.attempt == 0 or outcome.must_repeat:
            outcome.repeat()
        outcomes.append(outcome)
    short, full = outcomes
    assert (short.recovered, short.attempt) == (full.recovered, full.attempt)
    for few, all_slots in zip(short.traces, full.traces, strict=True):
        assert few.slot1 == all_slots.slot1
        assert all(row.startswith(part) for part, row in zip(few.relay, all_slots.relay, strict=True))
        assert len(few.relay[0]) == clients - 1 or short.recovered == tuple(range(clients))


def test_early_stop_needs_about_one_of_nine_relay_slots() -> None:
    """At P_e = 0.19445 and M = 10 an independent simulation needs 0.89 slots on average, and rarely more than one."""
    config = load_config(None, {"seed": 5})
    used = []
    for round in range(1, 1501):
        communication = Communication(config, channel(config), round)
        communication.repeat()
        used.append(communication.traces[0].relay_slots)
    assert abs(np.mean(used) - 0.89) < 4 * np.std(used) / np.sqrt(len(used)) + 0.005  # 0.89 is given to two digits
    assert np.mean(np.array(used) <= 1) > 0.99


def _update() -> LocalUpdate:
    message = Payload(np.zeros(3, dtype=np.uint8))
    return LocalUpdate(message=message, train_loss=0.0, num_clipped=0, train_seconds=0.0, encode_seconds=0.0)


def _theta() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.zeros(1, dtype=np.float32)


def _heard(sender: int, round: int = 1, attempt: int = 1) -> node_side.PeerSlotOver:
    return node_side.PeerSlotOver(sender, round, attempt, Outcome.DELIVERED, Payload(np.zeros(3, dtype=np.uint8)))


def _node(num_clients: int, *, waits_to_be_asked: bool = False) -> NodeProtocol:
    return NodeProtocol(0, num_clients, relay_slots=range(2, num_clients + 1), waits_to_be_asked=waits_to_be_asked)


def test_a_node_relays_only_when_slot_1_of_every_peer_is_over() -> None:
    node = _node(3)
    assert isinstance(node.handle(node_side.ModelArrived(1, _theta()))[0], node_side.Train)
    assert node.handle(_heard(2)) == []
    assert [type(action) for action in node.handle(node_side.Trained(_update()))] == [node_side.Transmit]
    report, relay = node.handle(node_side.PeerSlotOver(1, 1, 1, Outcome.ERASED, None))
    assert isinstance(report, node_side.Report)
    assert report.heard == (None, Outcome.ERASED, Outcome.DELIVERED)
    assert isinstance(relay, node_side.Relay)
    assert list(relay.messages) == [0, 2]
    assert list(relay.slots) == [2, 3]


def test_with_early_stop_a_node_relays_only_what_it_is_asked_for() -> None:
    node = _node(3, waits_to_be_asked=True)
    node.handle(node_side.ModelArrived(1, _theta()))
    node.handle(node_side.Trained(_update()))
    node.handle(_heard(1))
    assert [type(action) for action in node.handle(_heard(2))] == [node_side.Report]
    (relay,) = node.handle(node_side.RelayAsked(1, 1, 2))
    assert isinstance(relay, node_side.Relay)
    assert list(relay.slots) == [2]
    for stale in (node_side.RelayAsked(1, 2, 2), node_side.RelayAsked(2, 1, 2), node_side.RelayAsked(1, 1, 4)):
        assert node.handle(stale) == []
    assert node.num_stale == 3


def test_a_node_keeps_what_peers_send_ahead_of_it() -> None:
    node = _node(2)
    node.handle(_heard(1, round=1))
    node.handle(node_side.ModelArrived(1, _theta()))
    assert [type(action) for action in node.handle(node_side.Trained(_update()))] == [
        node_side.Transmit,
        node_side.Report,
        node_side.Relay,
    ]
    node.handle(_heard(1, round=1, attempt=2))
    node.handle(_heard(1, round=2))
    assert len(node.handle(node_side.RepeatAsked(1, 2))) == 3
    node.handle(node_side.ModelArrived(2, _theta()))
    assert len(node.handle(node_side.Trained(_update()))) == 3
    assert node.num_stale == 0


def test_a_node_counts_what_is_stale_and_goes_on() -> None:
    node = _node(2)
    node.handle(node_side.ModelArrived(2, _theta()))
    node.handle(node_side.Trained(_update()))
    node.handle(_heard(1, round=2))
    for stale in (
        _heard(1, round=2),
        _heard(1, round=1),
        _heard(0, round=2),
        node_side.RepeatAsked(1, 2),
        node_side.RepeatAsked(2, 1),
        node_side.ModelArrived(2, _theta()),
    ):
        assert node.handle(stale) == []
    assert node.num_stale == 6


def test_impossible_events_are_errors_that_say_where() -> None:
    node = NodeProtocol(4, 5, relay_slots=range(2, 6), waits_to_be_asked=True)
    with pytest.raises(ProtocolError, match=r"node 4: Trained.* cannot happen in IDLE, round 0"):
        node.handle(node_side.Trained(_update()))
    config = load_config(None, {"clients": 2})
    server = ServerProtocol(config, network_code(config))
    with pytest.raises(ProtocolError, match=r"PS: RoundClosed.* cannot happen in JOINING"):
        server.handle(server_side.RoundClosed(1))


def _joined(node: int, address: bytes = b"a") -> server_side.NodeJoined:
    return server_side.NodeJoined(node, address, ("h", 1))


def test_the_server_admits_each_node_once() -> None:
    config = load_config(None, {"clients": 2})
    server = ServerProtocol(config, network_code(config))
    assert server.handle(_joined(1)) == [server_side.Welcome(1, b"a")]
    (refused,) = server.handle(_joined(1, b"b"))
    assert refused == server_side.Refuse(b"b", "node 1 has joined already, from h:1")
    (refused,) = server.handle(_joined(2, b"c"))
    assert isinstance(refused, server_side.Refuse)
    assert "there is no node 2: the run has nodes 0..1" in refused.reason
    _, introduce = server.handle(_joined(0))
    assert isinstance(introduce, server_side.Introduce)
    assert isinstance(server.handle(_joined(0, b"d"))[0], server_side.Refuse)


def test_no_round_before_every_subscription_is_confirmed() -> None:
    config = load_config(None, {"clients": 2})
    server = ServerProtocol(config, network_code(config))
    events: list[server_side.Event] = [_joined(0), _joined(1), server_side.DownlinkHeard(0), server_side.NodeConnected(0)]
    events += [server_side.NodeConnected(1), server_side.DownlinkHeard(1)]
    for event in events[:-1]:
        assert not any(isinstance(action, server_side.StartRound) for action in server.handle(event))
    assert server.missing == (1,)
    assert server.handle(events[-1]) == [server_side.StartRound(1)]


def test_the_server_counts_what_is_stale_and_goes_on() -> None:
    config = load_config(None, {"clients": 2, "method": "nonanonymous"})
    server = ServerProtocol(config, network_code(config))
    for event in (
        _joined(0),
        _joined(1),
        *(kind(m) for m in (0, 1) for kind in (server_side.NodeConnected, server_side.DownlinkHeard)),
    ):
        server.handle(event)
    slot = server_side.SlotOver(0, 1, 1, 1, Outcome.ERASED, (0,), None)
    assert server.handle(slot) == []
    assert server.progress == (1, 1, 1, 2)
    for stale in (
        slot,
        server_side.SlotOver(1, 2, 1, 1, Outcome.ERASED, (1,), None),
        server_side.SlotOver(1, 1, 2, 1, Outcome.ERASED, (1,), None),
    ):
        server.handle(stale)
    assert server.num_stale == 3
