"""The server's side of the protocol: events in, actions out; no sockets, no clocks.

    JOINING     until every node has joined and loaded its data: then all are introduced to each other
    CONNECTING  until every subscription among the members is confirmed: then the round starts
    COLLECTING  until every open slot of every node is over and every node has reported: then open the next relay slot,
                repeat, or close the round
    CLOSING     while the new model is made and measured: then the next round, or the end
    DONE

Who has a clock tells of a deadline by `Expired`: nothing has come for too long. Then what is awaited counts as lost, and
the run goes on. A node that is gone (`NodeGone`) is as in outage on all its links from then on. It may come back, as a
new incarnation, at the beginning of a round; so may a node that is late. Below `min_nodes` the run ends.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto

from dncfl.common.config import Config
from dncfl.common.errors import ProtocolError
from dncfl.common.network_code import NetworkCode
from dncfl.common.words import nodes_in_words
from dncfl.server.actions import (
    Action,
    AskRelay,
    AskRepeat,
    CloseRound,
    Dismiss,
    EndWaiting,
    Finish,
    GiveUp,
    Introduce,
    Member,
    Refuse,
    Remind,
    Request,
    StartRound,
    Warn,
    Welcome,
)
from dncfl.server.collected import Collected
from dncfl.server.events import (
    DownlinkHeard,
    Event,
    Expired,
    NodeConnected,
    NodeGone,
    NodeJoined,
    NodeLoaded,
    Place,
    ReportArrived,
    RoundClosed,
    RoundDoubted,
    SlotOver,
    TrainingFailed,
)
from dncfl.server.observer import Progress
from dncfl.server.policy import may_repeat, must_repeat, needs_relays


class State(Enum):
    """Where the run stands."""

    JOINING = auto()
    CONNECTING = auto()
    COLLECTING = auto()
    CLOSING = auto()
    DONE = auto()


class ServerProtocol:
    """What the PS does next, given what has arrived."""

    def __init__(self, config: Config, code: NetworkCode, rounds_done: int = 0) -> None:
        """A run from its beginning, or after so many rounds."""
        self.state = State.JOINING
        self.num_stale = 0
        self.members: dict[int, Member] = {}
        self._config = config
        self._code = code
        self._nodes = range(code.num_clients)
        self._expected = set(self._nodes)
        self._edition = 0
        self._introduced: dict[int, Member] = {}
        self._collected = self._nothing_of(rounds_done)
        self._num_rejected = 0
        self._active: set[int] = set()
        self._silent: set[int] = set()
        self._pressed = False
        self._reasons: dict[int, str] = {}
        self._lost_links: set[tuple[int, int]] = set()

    @property
    def num_rejected(self) -> int:
        """How many codewords were not of what their sender holds."""
        return self._num_rejected + self._collected.num_rejected

    @property
    def missing(self) -> tuple[int, ...]:
        """The nodes that are not ready for the next round."""
        if self.state is State.CONNECTING:
            return tuple(m for m, member in self._introduced.items() if not self._is_ready(member))
        return tuple(m for m in self._nodes if m not in self.members or not self.members[m].loaded)

    @property
    def awaited(self) -> frozenset[int]:
        """The nodes that something on the air is awaited from."""
        if self.state is State.CONNECTING:
            return frozenset(self.missing)
        if self.state is State.COLLECTING:
            late = self._collected.late(self._active - self._silent)
            return frozenset(late | (self._active - self._collected.reports.keys()))
        return frozenset()

    @property
    def place(self) -> Place:
        """What is waited for at the moment: a deadline that was set elsewhere in the run means nothing here."""
        now = self._collected
        return self.state, self._edition, now.round, now.attempt, now.last_open_slot, self._pressed

    @property
    def progress(self) -> Progress:
        """Where communication stands."""
        now = self._collected
        return Progress(
            round=now.round,
            attempt=now.attempt,
            slots_over=now.num_over,
            num_slots=len(self._active) * now.last_open_slot,
            awaited=self.awaited,
        )

    def handle(self, event: Event) -> list[Action]:
        """The actions that an event leads to. Raises ProtocolError for one that cannot happen in this state."""
        if isinstance(event, Expired) and event.place != self.place:
            return []
        handler = _TRANSITIONS.get((self.state, type(event)))
        if handler is None:
            raise ProtocolError(f"PS: {event} cannot happen in {self.state.name}, round {self._collected.round}")
        return handler(self, event)

    def _join(self, event: NodeJoined) -> list[Action]:
        if event.node not in self._nodes:
            return [Refuse(event.address, f"there is no node {event.node}: the run has nodes 0..{len(self._nodes) - 1}")]
        if (member := self.members.get(event.node)) is not None:
            if (member.incarnation, member.address) == (event.incarnation, event.address) and not member.loaded:
                return [Welcome(event.node, event.address)]  # it may not have heard the one before
            if member.incarnation == event.incarnation:
                return self._count_stale(event)
            host, port = member.endpoint
            return [Refuse(event.address, f"node {event.node} has joined already, from {host}:{port}")]
        self.members[event.node] = Member(event.incarnation, event.address, event.endpoint)
        self._expected.add(event.node)
        self._reasons.pop(event.node, None)
        return [Welcome(event.node, event.address)]

    def _load(self, event: NodeLoaded) -> list[Action]:
        if event.node in self.members:
            self.members[event.node].loaded = True
        return self._introduce_when_all_are_here() if self.state is State.JOINING else []

    def _introduce_when_all_are_here(self) -> list[Action]:
        here = {m for m, member in self.members.items() if member.loaded}
        return [] if self._expected - here else self._begin()

    def _stop_joining(self, event: Expired) -> list[Action]:
        missing = [m for m in self._expected if m not in self.members or not self.members[m].loaded]
        begin = self._begin()
        if self.state is State.JOINING:
            return begin  # too few are here
        return [Warn(f"the run starts without {nodes_in_words(missing)}, which did not come in time"), *begin]

    def _begin(self) -> list[Action]:
        """The next round, after introductions where the members have changed."""
        loaded = {m: self.members[m] for m in sorted(self.members) if self.members[m].loaded}
        if gone := self._give_up_below(len(loaded), f"{nodes_in_words(set(self._nodes) - loaded.keys())} did not join"):
            return gone
        if loaded == self._introduced:
            return self._start_round()
        self.state = State.CONNECTING
        self._edition += 1
        self._introduced = loaded
        return [Introduce(self._edition, dict(loaded))]

    def _connect(self, event: NodeConnected) -> list[Action]:
        if event.node in self.members:
            self.members[event.node].edition = event.edition
        return self._start_when_ready()

    def _hear_downlink(self, event: DownlinkHeard) -> list[Action]:
        member = self.members.get(event.node)
        if member is None or member.incarnation != event.incarnation:
            return self._count_stale(event)
        member.hears = True
        if self.state is State.COLLECTING and event.node in self.awaited:
            return [Remind(event.node, event.incarnation, self._last_request())]
        return self._start_when_ready()

    def _last_request(self) -> Request:
        """What all nodes were told last, for those who are left; who has heard it does nothing when told again."""
        now, members = self._collected, tuple(sorted(self._active))
        if self._config.early_stop and now.last_open_slot > 1:
            return AskRelay(now.round, now.attempt, now.last_open_slot)
        return StartRound(now.round, members) if now.attempt == 1 else AskRepeat(now.round, now.attempt, members)

    def _is_ready(self, member: Member) -> bool:
        return member.hears and member.edition == self._edition

    def _start_when_ready(self) -> list[Action]:
        return [] if self.state is not State.CONNECTING or self.missing else self._start_round()

    def _start_anyway(self, event: Expired) -> list[Action]:
        """Who does not hear the PS cannot take part; other connections that do not come are links that lose everything."""
        missing = self.missing
        deaf = [m for m in missing if not self.members[m].hears]
        dismissed = [action for m in deaf for action in self._dismiss(m, "it does not hear the PS")]
        if gone := self._give_up_below(len(self._introduced), f"{nodes_in_words(deaf)} cannot be reached"):
            return [*dismissed, *gone]
        return [
            *dismissed,
            Warn(f"the round starts though connections of {nodes_in_words(missing)} are missing"),
            *self._start_round(),
        ]

    def _start_round(self) -> list[Action]:
        self.state = State.COLLECTING
        self._active = set(self._introduced)
        self._pressed = False
        self._num_rejected = self.num_rejected
        self._collected = self._nothing_of(self._collected.round + 1)
        return [StartRound(self._collected.round, tuple(self._introduced))]

    def _nothing_of(self, round: int) -> Collected:
        return Collected(round, self._code, asks_for_slots=self._config.early_stop)

    def _end_slot(self, event: SlotOver) -> list[Action]:
        self._silent.discard(event.sender)
        if event.sender in self._active and self._collected.take_slot(event):
            return self._close_when_complete()
        return self._count_stale(event)

    def _come_late(self, event: SlotOver) -> list[Action]:
        self._silent.discard(event.sender)
        return self._count_stale(event)

    def _take_report(self, event: ReportArrived) -> list[Action]:
        if event.report.node in self._active and self._collected.take_report(event.report):
            return self._close_when_complete()
        return self._count_stale(event)

    def _close_when_complete(self) -> list[Action]:
        now, decoder = self._collected, self._collected.decoder
        if len(now.reports) < len(self._active) or self.awaited:
            return []
        if not now.reports:
            return [GiveUp("no node is left that takes part in the round")]
        if needs_relays(now.arrived, decoder.recoverable()) and (slot := now.open_relay_slot()):
            return [AskRelay(now.round, now.attempt, slot)]
        if must_repeat(self._config, now.attempt, decoder.involved, decoder.recoverable()):
            return self._repeat()
        return [*self._warn_of_lost_links(), self._close(final=False)]

    def _repeat(self) -> list[Action]:
        self._collected.repeat()
        self._pressed = False
        return [AskRepeat(self._collected.round, self._collected.attempt, tuple(sorted(self._active)))]

    def _close(self, *, final: bool) -> CloseRound:
        self.state = State.CLOSING
        now = self._collected
        return CloseRound(
            now.round,
            now.decoder,
            direct=tuple(sorted(now.direct)),
            held={m: frozenset(messages) for m, messages in now.held.items()},
            attempts=now.traces,
            reports=tuple(now.trained[m] for m in sorted(now.trained)),
            final=final,
        )

    def _ask_for_more(self, event: RoundDoubted) -> list[Action]:
        """Where equations contradict each other, more of them may tell which are wrong.

        Where that is known, relay slots may still bring the missing messages; more is not asked for, or a node that never sends
        a sound message would cost every round all attempts.
        """
        self.state = State.COLLECTING
        now = self._collected
        if slot := now.open_relay_slot():
            return [AskRelay(now.round, now.attempt, slot)]
        if not event.settled and may_repeat(self._config, now.attempt):
            return self._repeat()
        return [self._close(final=True)]

    def _warn_of_lost_links(self) -> list[Action]:
        """Name the links between live stations that lost something, unless that is nothing new."""
        lost = self._collected.lost_links(self._active)
        new, self._lost_links = lost - self._lost_links, lost
        links = "; ".join(self._in_words(m, {k for sender, k in new if sender == m}) for m in sorted({m for m, _ in new}))
        return [Warn(f"round {self._collected.round}: lost on the way: {links}")] if new else []

    def _in_words(self, sender: int, receivers: set[int]) -> str:
        """The links of a sender."""
        nodes = receivers & set(self._nodes)
        ends = [*([nodes_in_words(nodes)] if nodes else []), *(["PS"] if receivers - nodes else [])]
        return f"node {sender} → {', '.join(ends)}"

    def _go_on_without_late_ones(self, event: Expired) -> list[Action]:
        """First nobody waits for slot 1 any more; then what still has not come is lost, and who has not reported is out."""
        now = self._collected
        without_report = self._active - now.reports.keys()
        if without_report and not self._pressed:
            self._pressed = True
            return [EndWaiting(now.round, now.attempt, tuple(sorted(self._introduced)), overdue=True)]
        self._silent |= self.awaited - without_report
        self._active -= without_report
        out = f"{nodes_in_words(without_report)} did not report: no further part in round {now.round}"
        return [*([Warn(out)] if without_report else []), *self._close_when_complete()]

    def _fail_training(self, event: TrainingFailed) -> list[Action]:
        if event.round != self._collected.round or event.node not in self._active or self.state is not State.COLLECTING:
            return self._count_stale(event)
        warning = Warn(f"node {event.node} takes no part in round {event.round}: {event.reason}")
        left = len(self._active) - 1
        return [
            warning,
            *self._leave_out(event.node),
            *(self._give_up_without(event.node, event.reason, left) or self._close_when_complete()),
        ]

    def _leave_out(self, node: int) -> list[Action]:
        """Count what this node would have sent from now on in this round as lost."""
        self._active.discard(node)
        return [EndWaiting(self._collected.round, self._collected.attempt, (node,))]

    def _lose(self, event: NodeGone) -> list[Action]:
        if event.for_good:
            self._expected.discard(event.node)
        took_part = event.node in self._active and self.state is State.COLLECTING
        self._active.discard(event.node)
        actions = self._dismiss(event.node, event.reason)
        reason = self._reasons.setdefault(event.node, event.reason)  # the first is the node's own, if it told one
        if self.state is State.JOINING:
            if gone := self._give_up_without(event.node, reason, len(self._expected)):
                return [*actions, *gone]
            return [*actions, *(self._introduce_when_all_are_here() if self._expected else [])]
        if gone := self._give_up_without(event.node, reason, len(self.members)):
            return [*actions, *gone]
        if self.state is State.CONNECTING:
            self._introduced = {}  # the others wait for its subscriptions: introduce them anew
            return [*actions, *self._begin()]
        if took_part:
            return [*actions, *self._leave_out(event.node), *self._close_when_complete()]
        return actions

    def _dismiss(self, node: int, reason: str) -> list[Action]:
        self._silent.discard(node)
        if node in self.members:
            self._reasons[node] = reason
        member = self.members.pop(node, None)
        if self._introduced.get(node) is member:
            self._introduced.pop(node, None)
        return [] if member is None else [Dismiss(node, member, reason)]

    def _give_up_without(self, node: int, reason: str, num_left: int) -> list[Action]:
        return self._give_up_below(num_left, f"the last to go is node {node}: {reason}")

    def _give_up_below(self, num_left: int, why: str) -> list[Action]:
        if num_left >= self._config.min_nodes:
            return []
        left = f"{num_left} of {len(self._nodes)} nodes {'is' if num_left == 1 else 'are'} left"
        return [GiveUp(f"{left}, fewer than min_nodes = {self._config.min_nodes}; {why}")]

    def _go_on(self, event: RoundClosed) -> list[Action]:
        self._active = set()
        if event.round < self._config.rounds:
            return self._begin()
        self.state = State.DONE
        return [Finish()]

    def _count_stale(self, event: Event) -> list[Action]:
        """Duplicates, and what belongs to a past round, attempt or life, change nothing."""
        self.num_stale += 1
        return []


_EVENTS_AT_ANY_TIME: Mapping[type[Event], Callable[..., list[Action]]] = {
    NodeJoined: ServerProtocol._join,
    NodeLoaded: ServerProtocol._load,
    NodeConnected: ServerProtocol._connect,
    DownlinkHeard: ServerProtocol._hear_downlink,
    NodeGone: ServerProtocol._lose,
    TrainingFailed: ServerProtocol._fail_training,
    SlotOver: ServerProtocol._come_late,
    ReportArrived: ServerProtocol._count_stale,
}

_TRANSITIONS: Mapping[tuple[State, type[Event]], Callable[..., list[Action]]] = {
    **{(state, event): handler for state in State for event, handler in _EVENTS_AT_ANY_TIME.items()},
    (State.JOINING, Expired): ServerProtocol._stop_joining,
    (State.CONNECTING, Expired): ServerProtocol._start_anyway,
    (State.COLLECTING, Expired): ServerProtocol._go_on_without_late_ones,
    (State.COLLECTING, SlotOver): ServerProtocol._end_slot,
    (State.COLLECTING, ReportArrived): ServerProtocol._take_report,
    (State.CLOSING, RoundDoubted): ServerProtocol._ask_for_more,
    (State.CLOSING, RoundClosed): ServerProtocol._go_on,
}
