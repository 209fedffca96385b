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
from dncfl.common.wire import Report
from dncfl.launch.reference import as_recorded, simulated
from dncfl.node import protocol as node_side
from dncfl.node.protocol import NodeProtocol
from dncfl.node.trainer import LocalUpdate
from dncfl.server import actions as server_actions
from dncfl.server import events as server_events
from dncfl.server.protocol import ServerProtocol, State
from tests.unit.ether import Ether, Mishaps, message_of


@settings(max_examples=60, deadline=None)
@given(
    clients=st.sampled_from([2, 3, 5, 8]),
    pe=st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]),
    method=st.sampled_from(["dnc", "repetition", "colrel", "qfl", "nonanonymous", "anonymous"]),
    decode=st.sampled_from(["all-heard", "partial"]),
    relay_slots=st.sampled_from([None, 0, 1]),
    early_stop=st.booleans(),
    seed=st.integers(0, 1000),
    order=st.integers(0, 2**32),
)
def test_any_order_of_arrival_gives_the_references_outcome(
    clients: int, pe: float, method: str, decode: str, relay_slots: int | None, early_stop: bool, seed: int, order: int
) -> None:
    settings: dict[str, object] = {} if relay_slots is None or method == "colrel" else {"relay_slots": relay_slots}
    if method == "colrel" and pe == 1:
        pe = 0.95  # weights cannot make up for what never arrives
    settings |= {"clients": clients, "pe": pe, "method": method, "decode": decode, "seed": seed, "rounds": 3}
    config = load_config(None, settings | {"max_attempts": 3, "early_stop": early_stop})
    ether = Ether(config, channel(config), np.random.default_rng(order))
    ether.run()
    assert ether.finished
    assert [action.round for action in ether.closed] == [1, 2, 3]
    for action in ether.closed:
        expected = simulated(config, channel(config), action.round)
        assert list(action.attempts) == expected.traces
        assert action.decoder.rank == expected.rank
        assert action.direct == tuple(np.flatnonzero(expected.direct))
        payloads = action.decoder.messages()
        assert tuple(payloads) == expected.solved
        assert ether.code.counted(payloads, action.held) == expected.recovered
        right = expected.received({m: message_of(config, m, action.round) for m in range(clients)}, ether.code)
        assert all(np.array_equal(payloads[m].symbols, right[m].symbols) for m in payloads)
    assert ether.server.num_stale == 0
    assert all(node.num_stale == 0 for node in ether.nodes.values())


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
        outcomes.append(simulated(config, channel(config), 1))
    short, full = outcomes
    assert (short.recovered, len(short.traces)) == (full.recovered, len(full.traces))
    for few, all_slots in zip(short.traces, full.traces, strict=True):
        assert few.slot1 == all_slots.slot1
        assert all(row.startswith(part) for part, row in zip(few.relay, all_slots.relay, strict=True))
        assert len(few.relay[0]) == clients - 1 or short.recovered == tuple(range(clients))


def test_early_stop_needs_about_one_of_nine_relay_slots() -> None:
    """At P_e = 0.19445 and M = 10 an independent simulation needs 0.89 slots on average, and rarely more than one."""
    config = load_config(None, {"seed": 5})
    used = []
    for round in range(1, 1501):
        communication = simulated(config, channel(config), round)
        used.append(communication.traces[0].relay_slots)
    assert abs(np.mean(used) - 0.89) < 4 * np.std(used) / np.sqrt(len(used)) + 0.005  # 0.89 is given to two digits
    assert np.mean(np.array(used) <= 1) > 0.99


def _update() -> LocalUpdate:
    message = Payload(np.zeros(3, dtype=np.uint8))
    return LocalUpdate(message=message, train_loss=0.0, num_clipped=0, train_seconds=0.0, encode_seconds=0.0)


EVERYONE = frozenset(range(8))


def _trained(round: int = 1) -> node_side.Trained:
    return node_side.Trained(round, _update())


def _theta() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.zeros(1, dtype=np.float32)


def _heard(sender: int, round: int = 1, attempt: int = 1) -> node_side.PeerSlotOver:
    return node_side.PeerSlotOver(sender, round, attempt, Outcome.DELIVERED, Payload(np.zeros(3, dtype=np.uint8)))


def _node(num_clients: int, *, waits_to_be_asked: bool = False) -> NodeProtocol:
    return NodeProtocol(0, num_clients, relay_slots=range(2, num_clients + 1), waits_to_be_asked=waits_to_be_asked)


def test_a_node_relays_only_when_slot_1_of_every_peer_is_over() -> None:
    node = _node(3)
    assert isinstance(node.handle(node_side.ModelArrived(1, _theta(), EVERYONE))[0], node_side.Train)
    assert node.handle(_heard(2)) == []
    assert [type(action) for action in node.handle(_trained())] == [node_side.Transmit]
    report, relay = node.handle(node_side.PeerSlotOver(1, 1, 1, Outcome.ERASED, None))
    assert isinstance(report, node_side.Report)
    assert report.heard == (None, Outcome.ERASED, Outcome.DELIVERED)
    assert isinstance(relay, node_side.Relay)
    assert list(relay.messages) == [0, 2]
    assert list(relay.slots) == [2, 3]


def test_with_early_stop_a_node_relays_only_what_it_is_asked_for() -> None:
    node = _node(3, waits_to_be_asked=True)
    node.handle(node_side.ModelArrived(1, _theta(), EVERYONE))
    node.handle(_trained())
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
    node.handle(node_side.ModelArrived(1, _theta(), EVERYONE))
    assert [type(action) for action in node.handle(_trained())] == [
        node_side.Transmit,
        node_side.Report,
        node_side.Relay,
    ]
    node.handle(_heard(1, round=1, attempt=2))
    node.handle(_heard(1, round=2))
    assert len(node.handle(node_side.RepeatAsked(1, 2, EVERYONE))) == 3
    node.handle(node_side.ModelArrived(2, _theta(), EVERYONE))
    assert len(node.handle(_trained(2))) == 3
    assert node.num_stale == 0


def test_what_never_comes_does_not_crowd_out_what_is_next() -> None:
    """A peer that claims to be far ahead fills a bounded memory, and the nearest are kept."""
    node = _node(2)
    node.handle(node_side.ModelArrived(1, _theta(), EVERYONE))
    for round in range(1000, 0, -1):
        node.handle(_heard(1, round=round, attempt=7))
    node.handle(_heard(1, round=2))
    node.handle(_heard(1, round=1))
    assert set(node._outcomes) == {(1, 1), (1, 7), (2, 1)}
    assert set(node._messages) == {1, 2}
    assert node.num_stale == 0
    node.handle(_heard(1, round=3))
    assert node.num_stale == 1
    assert len(node.handle(_trained())) == 3  # all of slot 1 is there


def test_a_node_counts_what_is_stale_and_goes_on() -> None:
    node = _node(2)
    node.handle(node_side.ModelArrived(2, _theta(), EVERYONE))
    node.handle(_trained(2))
    node.handle(_heard(1, round=2))
    for stale in (
        _heard(1, round=2),
        _heard(1, round=1),
        _heard(0, round=2),
        node_side.RepeatAsked(1, 2, EVERYONE),
        node_side.RepeatAsked(2, 1, EVERYONE),
        node_side.ModelArrived(2, _theta(), EVERYONE),
    ):
        assert node.handle(stale) == []
    assert node.num_stale == 6


@pytest.mark.parametrize("overdue", [False, True])
def test_only_a_link_that_is_overdue_is_not_waited_for_in_the_next_round(overdue: bool) -> None:
    """A node that could not train sends nothing in one round; in the next it is heard as before."""
    node = _node(3, waits_to_be_asked=True)
    node.handle(node_side.ModelArrived(1, _theta(), EVERYONE))
    node.handle(_trained(1))
    node.handle(_heard(1, round=1))
    (report,) = node.handle(node_side.WaitingEnds(1, 1, frozenset({2}), overdue))
    assert isinstance(report, node_side.Report)
    assert report.heard == (None, Outcome.DELIVERED, Outcome.LOST)
    node.handle(node_side.ModelArrived(2, _theta(), EVERYONE))
    node.handle(_trained(2))
    told = node.handle(_heard(1, round=2))
    assert bool(told) == overdue, "it reports without waiting for node 2 only where that link was overdue"
    late = node.handle(_heard(2, round=2))
    assert bool(late) != overdue


def test_what_no_node_does_is_an_error_that_says_where() -> None:
    config = load_config(None, {"clients": 2})
    server = ServerProtocol(config, network_code(config))
    with pytest.raises(ProtocolError, match=r"PS: RoundClosed.* cannot happen in JOINING"):
        server.handle(server_events.RoundClosed(1))


def _joined(node: int, address: bytes = b"a", incarnation: int = 1) -> server_events.NodeJoined:
    return server_events.NodeJoined(node, incarnation, address, ("h", 1))


def test_the_server_admits_each_node_once() -> None:
    config = load_config(None, {"clients": 2})
    server = ServerProtocol(config, network_code(config))
    assert server.handle(_joined(1)) == [server_actions.Welcome(1, b"a")]
    (refused,) = server.handle(_joined(1, b"b", incarnation=2))
    assert refused == server_actions.Refuse(b"b", "node 1 has joined already, from h:1")
    (refused,) = server.handle(_joined(2, b"c"))
    assert isinstance(refused, server_actions.Refuse)
    assert "there is no node 2: the run has nodes 0..1" in refused.reason
    assert server.handle(_joined(0)) == [server_actions.Welcome(0, b"a")]
    assert server.handle(server_events.NodeLoaded(1)) == []
    (introduce,) = server.handle(server_events.NodeLoaded(0))
    assert isinstance(introduce, server_actions.Introduce)
    assert list(introduce.members) == [0, 1]
    assert isinstance(server.handle(_joined(0, b"d", incarnation=2))[0], server_actions.Refuse)


def _begun(num_clients: int, **settings: object) -> ServerProtocol:
    """A PS in the first slot of its first round."""
    config = load_config(None, {"clients": num_clients, **settings})
    server = ServerProtocol(config, network_code(config))
    events: list[server_events.Event] = []
    for m in range(num_clients):
        events += [_joined(m), server_events.NodeLoaded(m), server_events.DownlinkHeard(m, 1)]
    events += [server_events.NodeConnected(m, 1) for m in range(num_clients)]
    for event in events[:-1]:
        assert not any(isinstance(action, server_actions.StartRound) for action in server.handle(event))
    assert server.missing == (num_clients - 1,)
    assert server.handle(events[-1]) == [server_actions.StartRound(1, tuple(range(num_clients)))]
    return server


def test_no_round_before_every_subscription_is_confirmed() -> None:
    assert _begun(2).state is State.COLLECTING


def test_the_server_counts_what_is_stale_and_goes_on() -> None:
    server = _begun(2, method="nonanonymous")
    slot = server_events.SlotOver(0, 1, 1, 1, Outcome.ERASED, (0,), None)
    assert server.handle(slot) == []
    assert (server.progress.slots_over, server.progress.num_slots, server.progress.awaited) == (1, 2, frozenset({0, 1}))
    for stale in (
        slot,
        server_events.SlotOver(1, 2, 1, 1, Outcome.ERASED, (1,), None),
        server_events.SlotOver(1, 1, 2, 1, Outcome.ERASED, (1,), None),
    ):
        server.handle(stale)
    assert server.num_stale == 3


@settings(max_examples=100, deadline=None)
@given(
    clients=st.sampled_from([2, 3, 5, 8]),
    pe=st.sampled_from([0.0, 0.2, 0.5]),
    early_stop=st.booleans(),
    order=st.integers(0, 2**32),
)
def test_a_downlink_that_breaks_loses_nothing(clients: int, pe: float, early_stop: bool, order: int) -> None:
    """A node that subscribes again is told again what it may have missed: nothing is given up, or waited for in vain."""
    config = load_config(None, {"clients": clients, "pe": pe, "early_stop": early_stop, "rounds": 5, "max_attempts": 3})
    ether = Ether(config, channel(config), np.random.default_rng(order), Mishaps(break_=0.2))
    ether.run()
    assert ether.finished
    assert ether.num_expired == 0
    for action in ether.closed:
        assert list(action.attempts) == simulated(config, channel(config), action.round).traces
    assert ether.server.num_stale == 0


@settings(max_examples=150, deadline=None)
@given(
    clients=st.sampled_from([2, 3, 5, 8]),
    pe=st.sampled_from([0.0, 0.2, 0.5]),
    death=st.sampled_from([0.0, 0.003, 0.02]),
    loss=st.sampled_from([0.0, 0.02, 0.2]),
    early_stop=st.booleans(),
    decode=st.sampled_from(["all-heard", "partial"]),
    order=st.integers(0, 2**32),
)
def test_deaths_returns_and_lost_frames_leave_a_trace_that_gives_the_same_outcome(
    clients: int, pe: float, death: float, loss: float, early_stop: bool, decode: str, order: int
) -> None:
    values = {"clients": clients, "pe": pe, "early_stop": early_stop, "decode": decode, "rounds": 5, "max_attempts": 3}
    config = load_config(None, values | {"min_nodes": 1})
    mishaps = Mishaps(death=death, return_=0.02, loss=loss)
    ether = Ether(config, channel(config), np.random.default_rng(order), mishaps)
    ether.run()
    assert ether.finished or ether.given_up
    assert [action.round for action in ether.closed] == list(range(1, len(ether.closed) + 1))
    for action in ether.closed:
        expected = as_recorded(config, action.attempts, action.round)
        messages = action.decoder.messages()
        assert tuple(messages) == expected.recovered
        assert action.decoder.rank == expected.rank
        assert action.direct == tuple(np.flatnonzero(expected.direct))
        assert all(np.array_equal(messages[m].symbols, message_of(config, m, action.round).symbols) for m in messages)
    letters = "".join("".join((*trace.slot1, *trace.relay)) for action in ether.closed for trace in action.attempts)
    if not ether.num_lost and not ether.num_deaths:
        assert "l" not in letters
        assert ether.num_expired == 0


def test_downlinks_do_break() -> None:
    """Else the property above is worth nothing."""
    config = load_config(None, {"clients": 5, "rounds": 20})
    ether = Ether(config, channel(config), np.random.default_rng(1), Mishaps(break_=0.2))
    ether.run()
    assert ether.num_broken >= 20


def test_mishaps_do_happen_and_are_survived() -> None:
    """The property above is worth something only where nodes die and return, and frames get lost, in runs that end."""
    config = load_config(None, {"clients": 5, "pe": 0.2, "rounds": 20, "min_nodes": 1})
    ethers = [
        Ether(config, channel(config), np.random.default_rng(order), Mishaps(death=0.002, return_=0.01, loss=0.02))
        for order in range(10)
    ]
    for ether in ethers:
        ether.run()
    assert sum(ether.finished for ether in ethers) >= 5
    assert sum(ether.num_deaths for ether in ethers) >= 10
    assert sum(ether.num_returns for ether in ethers) >= 10
    assert sum(ether.num_lost for ether in ethers) >= 10
    saved = 0
    for ether in ethers:
        for action in ether.closed:
            lost_at_server = {m for m, row in enumerate(action.attempts[-1].slot1) if row[-1] == "l"}
            saved += len(lost_at_server & set(action.decoder.recoverable()) - set(action.direct))
    assert saved >= 10  # messages that only the relays had, though their own transmission to the PS was lost


def test_a_dead_nodes_message_is_saved_by_those_who_heard_it() -> None:
    """Node 2 dies after slot 1, which the PS does not hear; both peers relay it."""
    server = _begun(3)
    code = network_code(load_config(None, {"clients": 3}))
    messages = {m: Payload(np.full(4, 10 + m, dtype=np.uint8)) for m in range(3)}
    for m in (0, 1):
        server.handle(server_events.SlotOver(m, 1, 1, 1, Outcome.DELIVERED, (m,), messages[m]))
        heard = "".join("-" if k == m else "d" for k in range(3))
        server.handle(server_events.ReportArrived(_report(m, heard)))
    dismissed, waiting, relay = server.handle(server_events.NodeGone(2, "it died"))
    assert isinstance(dismissed, server_actions.Dismiss)
    assert waiting == server_actions.EndWaiting(1, 1, (2,))
    assert relay == server_actions.AskRelay(1, 1, 2)
    (codeword,) = code.codewords(0, messages, [2])
    server.handle(server_events.SlotOver(0, 1, 1, 2, Outcome.DELIVERED, (0, 1, 2), codeword))
    (closed,) = server.handle(server_events.SlotOver(1, 1, 1, 2, Outcome.ERASED, (0, 1, 2), None))
    assert isinstance(closed, server_actions.CloseRound)
    assert closed.decoder.messages()[2].symbols.tolist() == [12] * 4
    assert closed.attempts[0].slot1 == ("-dld", "d-ld", "dd-l")
    assert closed.attempts[0].relay == ("d", "e", "l")


def test_what_a_node_reported_counts_though_it_is_gone_in_the_next_attempt() -> None:
    server = _begun(2)
    for m in range(2):
        server.handle(server_events.SlotOver(m, 1, 1, 1, Outcome.ERASED, (m,), None))
    server.handle(server_events.ReportArrived(_report(0, "-d")))
    server.handle(server_events.ReportArrived(_report(1, "d-")))
    for m in range(2):
        last = server.handle(server_events.SlotOver(m, 1, 1, 2, Outcome.ERASED, (0, 1), None))
    assert isinstance(last[0], server_actions.AskRepeat)
    server.handle(server_events.NodeGone(1, "it died"))
    payload = Payload(np.zeros(4, dtype=np.uint8))
    server.handle(server_events.SlotOver(0, 1, 2, 1, Outcome.DELIVERED, (0,), payload))
    server.handle(server_events.ReportArrived(_report(0, "-l", 2)))
    (closed,) = server.handle(server_events.SlotOver(0, 1, 2, 2, Outcome.DELIVERED, (0, 1), payload))
    assert isinstance(closed, server_actions.CloseRound)
    assert closed.decoder.recoverable() == (0, 1)
    assert [(report.node, report.attempt) for report in closed.reports] == [(0, 2), (1, 1)]


def _report(node: int, heard: str, attempt: int = 1) -> Report:
    return Report(
        node=node,
        round=1,
        attempt=attempt,
        heard=heard,
        train_seconds=0.0,
        encode_seconds=0.0,
        train_loss=0.0,
        num_clipped=0,
        bytes_from_peers=0,
    )


def test_a_doubtful_round_asks_for_all_that_may_still_come() -> None:
    """First the relay slots that early stop has left out, then another attempt; then it must do with what there is."""
    server = _begun(3, max_attempts=2)
    payload = Payload(np.zeros(4, dtype=np.uint8))
    asked: list[server_actions.Action] = []
    for attempt in (1, 2):
        for m in range(3):
            server.handle(server_events.SlotOver(m, 1, attempt, 1, Outcome.DELIVERED, (m,), payload))
            heard = "".join("-" if k == m else "d" for k in range(3))
            last = server.handle(server_events.ReportArrived(_report(m, heard, attempt)))
        for slot in (2, 3):
            assert isinstance(last[0], server_actions.CloseRound)
            assert not last[0].final
            asked += server.handle(server_events.RoundDoubted(1, settled=False))
            for m in range(3):
                last = server.handle(server_events.SlotOver(m, 1, attempt, slot, Outcome.DELIVERED, (0, 1, 2), payload))
        asked += server.handle(server_events.RoundDoubted(1, settled=False))
    *requests, closed = asked
    assert requests == [
        server_actions.AskRelay(1, 1, 2),
        server_actions.AskRelay(1, 1, 3),
        server_actions.AskRepeat(1, 2, (0, 1, 2)),
        server_actions.AskRelay(1, 2, 2),
        server_actions.AskRelay(1, 2, 3),
    ]
    assert isinstance(closed, server_actions.CloseRound)
    assert closed.final
    assert [trace.relay_slots for trace in closed.attempts] == [2, 2]
    assert len(closed.decoder.equations) == 2 * 9


def test_a_codeword_of_what_its_sender_does_not_hold_is_refused() -> None:
    server = _begun(2)
    for m in range(2):
        server.handle(server_events.SlotOver(m, 1, 1, 1, Outcome.ERASED, (m,), None))
    server.handle(server_events.ReportArrived(_report(0, "-e")))
    (relay,) = server.handle(server_events.ReportArrived(_report(1, "d-")))
    assert isinstance(relay, server_actions.AskRelay)
    payload = Payload(np.zeros(4, dtype=np.uint8))
    server.handle(server_events.SlotOver(0, 1, 1, 2, Outcome.DELIVERED, (0, 1), payload))
    assert server.num_rejected == 1
    (again,) = server.handle(server_events.SlotOver(1, 1, 1, 2, Outcome.DELIVERED, (0, 1), payload))
    assert isinstance(again, server_actions.AskRepeat)  # one equation of two unknowns


def test_below_min_nodes_the_run_ends_with_the_reason_of_the_last_to_go() -> None:
    server = _begun(3, min_nodes=2)
    assert not any(isinstance(action, server_actions.GiveUp) for action in server.handle(server_events.NodeGone(0, "a fire")))
    gone = server.handle(server_events.TrainingFailed(1, 1, "no memory"))[-1]
    assert isinstance(gone, server_actions.GiveUp)
    assert gone.reason == "1 of 3 nodes is left, fewer than min_nodes = 2; the last to go is node 1: no memory"


def test_a_deadline_of_an_earlier_step_means_nothing() -> None:
    server = _begun(2)
    place = server.place
    server.handle(server_events.NodeGone(1, "it died"))
    server.handle(server_events.SlotOver(0, 1, 1, 1, Outcome.DELIVERED, (0,), Payload(np.zeros(4, dtype=np.uint8))))
    server.handle(server_events.ReportArrived(_report(0, "-l")))
    assert server.state is State.CLOSING
    assert server.handle(server_events.Expired(place)) == []


def test_the_run_starts_without_nodes_that_do_not_come() -> None:
    config = load_config(None, {"clients": 3, "min_nodes": 2})
    server = ServerProtocol(config, network_code(config))
    for m in (0, 2):
        server.handle(_joined(m))
        server.handle(server_events.NodeLoaded(m))
    warning, introduce = server.handle(server_events.Expired(server.place))
    assert warning == server_actions.Warn("the run starts without node 1, which did not come in time")
    assert isinstance(introduce, server_actions.Introduce)
    alone = ServerProtocol(config, network_code(config))
    alone.handle(_joined(0))
    alone.handle(server_events.NodeLoaded(0))
    (gone,) = alone.handle(server_events.Expired(alone.place))
    assert gone == server_actions.GiveUp("1 of 3 nodes is left, fewer than min_nodes = 2; nodes 1, 2 did not join")
