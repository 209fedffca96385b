"""The server's side of the protocol: events in, actions out; no sockets, no clocks.

    JOINING     until every node has joined and loaded its data: then all are introduced to each other
    CONNECTING  until every subscription among the members is confirmed: then the round starts
    COLLECTING  until every open slot of every node is over and every node has reported: then open the next relay slot,
                repeat, or close the round
    CLOSING     while the new model is made and measured: then the next round, or the end
    DONE

Equations go into the decoder as they arrive, so that what is recoverable is known at any moment.

Who has a clock tells of a deadline by `Expired`: nothing has come for too long. Then what is awaited counts as lost, and
the run goes on. A node that is gone (`NodeGone`) is as in outage on all its links from then on. It may come back, as a
new incarnation, at the beginning of a round; so may a node that is late. Below `min_nodes` the run ends.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from dncfl.common.channel import Outcome
from dncfl.common.config import Config
from dncfl.common.errors import ProtocolError
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload
from dncfl.common.trace import NOT_LISTENED, AttemptTrace, letters
from dncfl.common.wire import Report
from dncfl.server.decoder import Decoder, Equation
from dncfl.server.policy import may_repeat, must_repeat, needs_relays

Place = tuple["State", int, int, int, int, bool]


class State(Enum):
    """Where the run stands."""

    JOINING = auto()
    CONNECTING = auto()
    COLLECTING = auto()
    CLOSING = auto()
    DONE = auto()


@dataclass(frozen=True)
class NodeJoined:
    """Somebody who can be reached at `address` asks to be node `node`, with publications at `endpoint`, a host and port."""

    node: int
    incarnation: int
    address: bytes
    endpoint: tuple[str, int]


@dataclass(frozen=True)
class NodeLoaded:
    """This node has its data and model."""

    node: int


@dataclass(frozen=True)
class NodeConnected:
    """All members of this edition of the list have subscribed to this node, and the PS has."""

    node: int
    edition: int


@dataclass(frozen=True)
class DownlinkHeard:
    """This node has subscribed to the downlink."""

    node: int
    incarnation: int


@dataclass(frozen=True)
class NodeGone:
    """This node is dead, or counts as dead. `for_good`: nobody will start it again, so that nobody need wait for it."""

    node: int
    reason: str
    for_good: bool = False


@dataclass(frozen=True)
class TrainingFailed:
    """Training raised an error at this node; it takes no part in the round."""

    node: int
    round: int
    reason: str


@dataclass(frozen=True)
class SlotOver:
    """A slot of a sender is over at the PS: the payload, which combines `messages`, was delivered, or nothing was."""

    sender: int
    round: int
    attempt: int
    slot: int
    outcome: Outcome
    messages: tuple[int, ...]
    payload: Payload | None = field(repr=False)


@dataclass(frozen=True)
class ReportArrived:
    """A node told how an attempt went at its side."""

    report: Report


@dataclass(frozen=True)
class Expired:
    """Nothing of what is awaited at this place has come for too long; see `ServerProtocol.place`."""

    place: "Place"


@dataclass(frozen=True)
class RoundDoubted:
    """Equations contradict each other or their messages do not prove themselves, and more equations may help.

    `settled`: it is known who sent what was wrong, and only messages are missing.
    """

    round: int
    settled: bool


@dataclass(frozen=True)
class RoundClosed:
    """The new model of the round is made, measured and recorded."""

    round: int


Event = (
    NodeJoined
    | NodeLoaded
    | NodeConnected
    | DownlinkHeard
    | NodeGone
    | TrainingFailed
    | SlotOver
    | ReportArrived
    | Expired
    | RoundDoubted
    | RoundClosed
)


@dataclass
class Member:
    """One life of a node, as the PS knows it."""

    incarnation: int
    address: bytes
    endpoint: tuple[str, int]
    loaded: bool = False
    hears: bool = False
    edition: int = 0
    """of the list of members whose subscriptions it has confirmed"""


@dataclass(frozen=True)
class Welcome:
    """Admit the one at `address` as node `node`."""

    node: int
    address: bytes


@dataclass(frozen=True)
class Refuse:
    """Turn the one at `address` away."""

    address: bytes
    reason: str


@dataclass(frozen=True)
class Dismiss:
    """Hear this life of a node no more."""

    node: int
    member: Member
    reason: str


@dataclass(frozen=True)
class Introduce:
    """Tell all members of each other, and subscribe to them."""

    edition: int
    members: Mapping[int, Member]


@dataclass(frozen=True)
class StartRound:
    """Publish the global model to those who take part."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class AskRelay:
    """Ask all nodes for their codewords of a relay slot."""

    round: int
    attempt: int
    slot: int


@dataclass(frozen=True)
class AskRepeat:
    """Ask those who still take part for another attempt."""

    round: int
    attempt: int
    members: tuple[int, ...]


Request = StartRound | AskRelay | AskRepeat
"""What nodes are to do next."""


@dataclass(frozen=True)
class Remind:
    """Tell one node again what all were told: its connection was broken, and it may have missed it."""

    node: int
    incarnation: int
    request: Request


@dataclass(frozen=True)
class EndWaiting:
    """Tell all nodes not to wait for slot 1 of these senders."""

    round: int
    attempt: int
    senders: tuple[int, ...]


@dataclass(frozen=True)
class Warn:
    """Tell the user of what went wrong while the run goes on."""

    text: str


@dataclass(frozen=True)
class CloseRound:
    """Communication is over: decode, aggregate, evaluate, record. `final`: nothing more will come, however doubtful it is."""

    round: int
    decoder: Decoder = field(repr=False)
    direct: tuple[int, ...]
    held: Mapping[int, frozenset[int]] = field(repr=False)
    """which messages each node held, as it reported"""
    attempts: tuple[AttemptTrace, ...] = field(repr=False)
    reports: tuple[Report, ...] = field(repr=False)
    final: bool = False


@dataclass(frozen=True)
class GiveUp:
    """Too few nodes are left: end the run."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """All rounds are done."""


Action = (
    Welcome
    | Refuse
    | Dismiss
    | Introduce
    | StartRound
    | AskRelay
    | AskRepeat
    | Remind
    | EndWaiting
    | Warn
    | CloseRound
    | GiveUp
    | Finish
)


class ServerProtocol:
    """What the PS does next, given what has arrived."""

    def __init__(self, config: Config, code: NetworkCode, rounds_done: int = 0) -> None:
        """A run from its beginning, or after so many rounds."""
        self.state = State.JOINING
        self.num_stale = 0
        self.num_rejected = 0
        self.members: dict[int, Member] = {}
        self._config = config
        self._code = code
        self._nodes = range(code.num_clients)
        self._expected = set(self._nodes)
        self._edition = 0
        self._introduced: dict[int, Member] = {}
        self._round = rounds_done
        self._attempt = 0
        self._last_open_slot = 0
        self._active: set[int] = set()
        self._silent: set[int] = set()
        self._pressed = False
        self._decoder = Decoder(code.num_clients, code.p)
        self._direct: set[int] = set()
        self._held: dict[int, set[int]] = defaultdict(set)
        self._slots: dict[tuple[int, int], Outcome] = {}
        self._num_over: Counter[int] = Counter()
        self._early: dict[int, list[SlotOver]] = defaultdict(list)
        self._reports: dict[int, Report] = {}
        self._traces: list[AttemptTrace] = []
        self._reasons: dict[int, str] = {}
        self._lost_links: set[str] = set()

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
            late = {m for m in self._active - self._silent if self._num_over[m] < self._last_open_slot}
            return frozenset(late | (self._active - self._reports.keys()))
        return frozenset()

    @property
    def place(self) -> Place:
        """What is waited for at the moment: a deadline that was set elsewhere in the run means nothing here."""
        return self.state, self._edition, self._round, self._attempt, self._last_open_slot, self._pressed

    @property
    def progress(self) -> tuple[int, int, int, int]:
        """Where communication stands: round, attempt, how many open slots of all nodes are over, of how many."""
        return self._round, self._attempt, len(self._slots), len(self._active) * self._last_open_slot

    def handle(self, event: Event) -> list[Action]:
        """The actions that an event leads to. Raises ProtocolError for one that cannot happen in this state."""
        if isinstance(event, Expired) and event.place != self.place:
            return []
        handler = _TRANSITIONS.get((self.state, type(event)))
        if handler is None:
            raise ProtocolError(f"PS: {event} cannot happen in {self.state.name}, round {self._round}")
        return handler(self, event)

    def _join(self, event: NodeJoined) -> list[Action]:
        if event.node not in self._nodes:
            return [Refuse(event.address, f"there is no node {event.node}: the run has nodes 0..{len(self._nodes) - 1}")]
        if (member := self.members.get(event.node)) is not None:
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
        return [Warn(f"the run starts without {_listed(missing)}, which did not come in time"), *self._begin()]

    def _begin(self) -> list[Action]:
        """The next round, after introductions where the members have changed."""
        loaded = {m: self.members[m] for m in sorted(self.members) if self.members[m].loaded}
        if (gone := self._give_up_below(len(loaded), "did not join")) or loaded == self._introduced:
            return gone or self._start_round()
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
        if self._config.early_stop and self._last_open_slot > 1:
            return AskRelay(self._round, self._attempt, self._last_open_slot)
        members = tuple(sorted(self._active))
        return StartRound(self._round, members) if self._attempt == 1 else AskRepeat(self._round, self._attempt, members)

    def _is_ready(self, member: Member) -> bool:
        return member.hears and member.edition == self._edition

    def _start_when_ready(self) -> list[Action]:
        return [] if self.state is not State.CONNECTING or self.missing else self._start_round()

    def _start_anyway(self, event: Expired) -> list[Action]:
        """Who does not hear the PS cannot take part; other connections that do not come are links that lose everything."""
        missing = self.missing
        dismissed = [
            action for m in missing if not self.members[m].hears for action in self._dismiss(m, "it does not hear the PS")
        ]
        if gone := self._give_up_below(len(self._introduced), "cannot be reached"):
            return [*dismissed, *gone]
        return [
            *dismissed,
            Warn(f"the round starts though connections of {_listed(missing)} are missing"),
            *self._start_round(),
        ]

    def _start_round(self) -> list[Action]:
        self.state = State.COLLECTING
        self._round += 1
        self._active = set(self._introduced)
        self._decoder = Decoder(self._code.num_clients, self._code.p)
        self._direct = set()
        self._held = defaultdict(set)
        self._traces = []
        self._start_attempt(1)
        return [StartRound(self._round, tuple(self._introduced))]

    def _start_attempt(self, attempt: int) -> None:
        self._attempt = attempt
        self._last_open_slot = 1 if self._config.early_stop else 1 + self._code.relay_slots
        self._pressed = False
        self._slots = {}
        self._num_over = Counter()
        self._early = defaultdict(list)
        self._reports = {}

    def _end_slot(self, event: SlotOver) -> list[Action]:
        sender, place = event.sender, (event.sender, event.slot)
        self._silent.discard(sender)
        early = any(other.slot == event.slot for other in self._early[sender])
        is_due = (event.round, event.attempt) == (self._round, self._attempt) and event.slot <= self._last_open_slot
        if not is_due or sender not in self._active or place in self._slots or early:
            return self._count_stale(event)
        if event.slot > 1 and sender not in self._reports:
            self._early[sender].append(event)  # what it holds is known only by its report
            return []
        self._take(event)
        return self._close_when_complete()

    def _come_late(self, event: SlotOver) -> list[Action]:
        self._silent.discard(event.sender)
        return self._count_stale(event)

    def _take(self, event: SlotOver) -> None:
        self._num_over[event.sender] += 1
        if event.slot > 1 and set(event.messages) != self._held[event.sender]:
            self.num_rejected += 1  # a codeword of what the sender does not hold
            self._slots[event.sender, event.slot] = Outcome.LOST
            return
        self._slots[event.sender, event.slot] = event.outcome
        if event.payload is not None:
            coefficients = self._code.coefficients(event.sender, event.slot, event.messages)
            if coefficients.any():
                self._decoder.add(Equation(event.sender, event.slot, event.attempt, coefficients, event.payload))
            if event.slot == 1:
                self._direct.add(event.sender)

    def _take_report(self, event: ReportArrived) -> list[Action]:
        report = event.report
        is_due = (report.round, report.attempt) == (self._round, self._attempt)
        if not is_due or report.node not in self._active or report.node in self._reports:
            return self._count_stale(event)
        self._reports[report.node] = report
        self._held[report.node] |= {m for m, letter in enumerate(report.heard) if letter == Outcome.DELIVERED.value}
        self._held[report.node].add(report.node)
        for codeword in self._early.pop(report.node, []):
            self._take(codeword)
        return self._close_when_complete()

    def _close_when_complete(self) -> list[Action]:
        if len(self._reports) < len(self._active) or self.awaited:
            return []
        if not self._reports:
            return [GiveUp("no node is left that takes part in the round")]
        arrived = set().union(*(self._held[m] for m in self._reports), self._decoder.involved)
        if self._last_open_slot <= self._code.relay_slots and needs_relays(arrived, self._decoder.recoverable()):
            return self._open_relay_slot()
        if must_repeat(self._config, self._attempt, self._decoder.involved, self._decoder.recoverable()):
            return self._repeat()
        return [*self._warn_of_lost_links(), self._close(final=False)]

    def _open_relay_slot(self) -> list[Action]:
        self._last_open_slot += 1
        return [AskRelay(self._round, self._attempt, self._last_open_slot)]

    def _repeat(self) -> list[Action]:
        self._traces.append(self._trace())
        self._start_attempt(self._attempt + 1)
        return [AskRepeat(self._round, self._attempt, tuple(sorted(self._active)))]

    def _close(self, *, final: bool) -> CloseRound:
        self.state = State.CLOSING
        reports = tuple(self._reports[m] for m in sorted(self._reports))
        direct = tuple(sorted(self._direct))
        held = {m: frozenset(messages) for m, messages in self._held.items()}
        return CloseRound(self._round, self._decoder, direct, held, (*self._traces, self._trace()), reports, final)

    def _ask_for_more(self, event: RoundDoubted) -> list[Action]:
        """Where equations contradict each other, more of them may tell which are wrong.

        Where that is known, relay slots may still bring the missing messages; more is not asked for, or a node that never sends
        a sound message would cost every round all attempts.
        """
        self.state = State.COLLECTING
        if self._last_open_slot <= self._code.relay_slots:
            return self._open_relay_slot()
        if not event.settled and may_repeat(self._config, self._attempt):
            return self._repeat()
        return [self._close(final=True)]

    def _warn_of_lost_links(self) -> list[Action]:
        """Name the links between live stations that lost something, unless that is nothing new."""
        live = sorted(self._active)
        lost = {
            f"node {m} → {f'node {k}' if k in self._nodes else 'PS'}"
            for trace in (*self._traces, self._trace())
            for m in live
            for k in (*live, len(self._nodes))
            if Outcome.LOST.value in trace.slot1[m][k] + (trace.relay[m] if k not in self._nodes else "")
        }
        new, self._lost_links = lost - self._lost_links, lost
        return [Warn(f"round {self._round}: lost on the way: {', '.join(sorted(new))}")] if new else []

    def _trace(self) -> AttemptTrace:
        slots = range(2, self._last_open_slot + 1)
        lost = Outcome.LOST
        return AttemptTrace(
            round=self._round,
            attempt=self._attempt,
            slot1=tuple(
                "".join(self._letter(m, k) for k in self._nodes) + self._slots.get((m, 1), lost).value for m in self._nodes
            ),
            relay=tuple(letters(self._slots.get((m, slot), lost) for slot in slots) for m in self._nodes),
        )

    def _letter(self, sender: int, receiver: int) -> str:
        if sender == receiver or not self._code.relay_slots:
            return NOT_LISTENED
        return self._reports[receiver].heard[sender] if receiver in self._reports else Outcome.LOST.value

    def _go_on_without_late_ones(self, event: Expired) -> list[Action]:
        """First nobody waits for slot 1 any more; then what still has not come is lost, and who has not reported is out."""
        without_report = self._active - self._reports.keys()
        if without_report and not self._pressed:
            self._pressed = True
            senders = tuple(sorted(self._introduced))
            return [EndWaiting(self._round, self._attempt, senders)]
        self._silent |= self.awaited - without_report
        self._active -= without_report
        out = f"{_listed(without_report)} did not report, and takes no further part in round {self._round}"
        return [*([Warn(out)] if without_report else []), *self._close_when_complete()]

    def _fail_training(self, event: TrainingFailed) -> list[Action]:
        if event.round != self._round or event.node not in self._active or self.state is not State.COLLECTING:
            return self._count_stale(event)
        warning = Warn(f"node {event.node} takes no part in round {event.round}: {event.reason}")
        left = len(self._active) - 1
        return [
            warning,
            *self._leave_out(event.node),
            *(self._give_up_below(left, event.reason) or self._close_when_complete()),
        ]

    def _leave_out(self, node: int) -> list[Action]:
        """Count what this node would have sent from now on in this round as lost."""
        self._active.discard(node)
        return [EndWaiting(self._round, self._attempt, (node,))]

    def _lose(self, event: NodeGone) -> list[Action]:
        if event.for_good:
            self._expected.discard(event.node)
        took_part = event.node in self._active and self.state is State.COLLECTING
        self._active.discard(event.node)
        actions = self._dismiss(event.node, event.reason)
        reason = self._reasons.setdefault(event.node, event.reason)  # the first is the node's own, if it told one
        if self.state is State.JOINING:
            if gone := self._give_up_below(len(self._expected), reason):
                return [*actions, *gone]
            return [*actions, *(self._introduce_when_all_are_here() if self._expected else [])]
        if gone := self._give_up_below(len(self.members), reason):
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

    def _give_up_below(self, num_left: int, reason: str) -> list[Action]:
        if num_left >= self._config.min_nodes:
            return []
        left = f"{num_left} of {len(self._nodes)} nodes {'is' if num_left == 1 else 'are'} left"
        return [GiveUp(f"{left}, fewer than min_nodes = {self._config.min_nodes}; the last to go: {reason}")]

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


def _listed(nodes: Iterable[int]) -> str:
    numbers = sorted(nodes)
    return ("node " if len(numbers) == 1 else "nodes ") + ", ".join(map(str, numbers))


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
