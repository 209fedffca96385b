"""The server's side of the protocol: events in, actions out; no sockets, no clocks.

    JOINING     until every node has joined, then all are introduced to each other
    CONNECTING  until every subscription is confirmed in both directions, then round 1 starts
    COLLECTING  until every open slot of every node is over and every node has reported: then open the next relay slot,
                repeat, or close the round
    CLOSING     while the new model is made and measured: then the next round, or the end
    DONE

Equations go into the decoder as they arrive, so that what is recoverable is known at any moment.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from dncfl.common.channel import Outcome
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.config import Config
from dncfl.common.errors import ProtocolError
from dncfl.common.payload import Payload
from dncfl.common.trace import AttemptTrace, letters
from dncfl.common.wire import Report
from dncfl.server.decoder import Decoder
from dncfl.server.policy import must_repeat, needs_relays


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
    address: bytes
    endpoint: tuple[str, int]


@dataclass(frozen=True)
class NodeConnected:
    """All who must hear this node have subscribed."""

    node: int


@dataclass(frozen=True)
class DownlinkHeard:
    """This node has subscribed to the downlink."""

    node: int


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
class RoundClosed:
    """The new model of the round is made, measured and recorded."""

    round: int


Event = NodeJoined | NodeConnected | DownlinkHeard | SlotOver | ReportArrived | RoundClosed


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
class Introduce:
    """Tell all nodes the endpoints of all, and subscribe to them."""

    endpoints: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class StartRound:
    """Publish the global model."""

    round: int


@dataclass(frozen=True)
class AskRelay:
    """Ask all nodes for their codewords of a relay slot."""

    round: int
    attempt: int
    slot: int


@dataclass(frozen=True)
class AskRepeat:
    """Ask all nodes for another attempt."""

    round: int
    attempt: int


@dataclass(frozen=True)
class CloseRound:
    """Communication is over: decode, aggregate, evaluate, record."""

    round: int
    decoder: Decoder = field(repr=False)
    direct: tuple[int, ...]
    attempts: tuple[AttemptTrace, ...] = field(repr=False)
    reports: tuple[Report, ...] = field(repr=False)


@dataclass(frozen=True)
class Finish:
    """All rounds are done."""


Action = Welcome | Refuse | Introduce | StartRound | AskRelay | AskRepeat | CloseRound | Finish


class ServerProtocol:
    """What the PS does next, given what has arrived."""

    def __init__(self, config: Config, code: DiversityNetworkCode) -> None:
        self.state = State.JOINING
        self.num_stale = 0
        self._config = config
        self._code = code
        self._endpoints: dict[int, tuple[str, int]] = {}
        self._connected: set[int] = set()
        self._hearing: set[int] = set()
        self._round = 0
        self._attempt = 0
        self._last_open_slot = 0
        self._decoder = Decoder(code.num_clients, code.p)
        self._direct: set[int] = set()
        self._slots: dict[tuple[int, int], Outcome] = {}
        self._reports: dict[int, Report] = {}
        self._traces: list[AttemptTrace] = []

    @property
    def missing(self) -> tuple[int, ...]:
        """The nodes that are not ready for the first round."""
        return tuple(m for m in range(self._code.num_clients) if m not in self._connected & self._hearing)

    @property
    def awaited(self) -> str:
        """What the run waits for, in words; empty while it waits for nobody on the air."""
        nodes = range(self._code.num_clients)
        if self.state is State.CONNECTING:
            return f"the connections of nodes {', '.join(map(str, self.missing))}"
        if self.state is State.COLLECTING:
            slots = range(1, self._last_open_slot + 1)
            missing = [f"slot {s} of node {m}" for m in nodes for s in slots if (m, s) not in self._slots]
            missing += [f"the report of node {m}" for m in nodes if m not in self._reports]
            return f"{', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}"
        return ""

    @property
    def progress(self) -> tuple[int, int, int, int]:
        """Where communication stands: round, attempt, how many open slots of all nodes are over, of how many."""
        return self._round, self._attempt, len(self._slots), self._code.num_clients * self._last_open_slot

    def handle(self, event: Event) -> list[Action]:
        """The actions that an event leads to. Raises ProtocolError for one that cannot happen in this state."""
        handler = _TRANSITIONS.get((self.state, type(event)))
        if handler is None:
            raise ProtocolError(f"PS: {event} cannot happen in {self.state.name}, round {self._round}")
        return handler(self, event)

    def _join(self, event: NodeJoined) -> list[Action]:
        num_clients = self._code.num_clients
        if event.node >= num_clients:
            return [Refuse(event.address, f"there is no node {event.node}: the run has nodes 0..{num_clients - 1}")]
        if event.node in self._endpoints:
            host, port = self._endpoints[event.node]
            return [Refuse(event.address, f"node {event.node} has joined already, from {host}:{port}")]
        self._endpoints[event.node] = event.endpoint
        if len(self._endpoints) < num_clients:
            return [Welcome(event.node, event.address)]
        self.state = State.CONNECTING
        endpoints = tuple(self._endpoints[m] for m in range(num_clients))
        return [Welcome(event.node, event.address), Introduce(endpoints)]

    def _refuse(self, event: NodeJoined) -> list[Action]:
        return [Refuse(event.address, f"all {self._code.num_clients} nodes of the run have joined already")]

    def _connect(self, event: NodeConnected) -> list[Action]:
        self._connected.add(event.node)
        return self._start_when_ready()

    def _hear_downlink(self, event: DownlinkHeard) -> list[Action]:
        self._hearing.add(event.node)
        return self._start_when_ready()

    def _start_when_ready(self) -> list[Action]:
        return [] if self.missing else self._start_round()

    def _start_round(self) -> list[Action]:
        self.state = State.COLLECTING
        self._round += 1
        self._decoder = Decoder(self._code.num_clients, self._code.p)
        self._direct = set()
        self._traces = []
        self._start_attempt(1)
        return [StartRound(self._round)]

    def _start_attempt(self, attempt: int) -> None:
        self._attempt = attempt
        self._last_open_slot = 1 if self._config.early_stop else 1 + self._code.relay_slots
        self._slots = {}
        self._reports = {}

    def _end_slot(self, event: SlotOver) -> list[Action]:
        place = (event.sender, event.slot)
        if (event.round, event.attempt) != (self._round, self._attempt) or place in self._slots:
            return self._count_stale(event)
        self._slots[place] = event.outcome
        if event.payload is not None:
            self._decoder.add(self._code.coefficients(event.sender, event.slot, event.messages), event.payload)
            if event.slot == 1:
                self._direct.add(event.sender)
        return self._close_when_complete()

    def _take_report(self, event: ReportArrived) -> list[Action]:
        report = event.report
        if (report.round, report.attempt) != (self._round, self._attempt) or report.node in self._reports:
            return self._count_stale(event)
        self._reports[report.node] = report
        return self._close_when_complete()

    def _close_when_complete(self) -> list[Action]:
        num_clients = self._code.num_clients
        if len(self._reports) < num_clients or len(self._slots) < num_clients * self._last_open_slot:
            return []
        if self._last_open_slot <= self._code.relay_slots and needs_relays(num_clients, self._decoder.recoverable()):
            self._last_open_slot += 1
            return [AskRelay(self._round, self._attempt, self._last_open_slot)]
        self._traces.append(self._trace())
        if must_repeat(self._config, self._attempt, self._decoder.involved, self._decoder.recoverable()):
            self._start_attempt(self._attempt + 1)
            return [AskRepeat(self._round, self._attempt)]
        self.state = State.CLOSING
        reports = tuple(self._reports[m] for m in range(num_clients))
        direct = tuple(sorted(self._direct))
        return [CloseRound(self._round, self._decoder, direct, tuple(self._traces), reports)]

    def _trace(self) -> AttemptTrace:
        clients, relay_slots = range(self._code.num_clients), range(2, self._last_open_slot + 1)
        return AttemptTrace(
            round=self._round,
            attempt=self._attempt,
            slot1=tuple("".join(self._reports[k].heard[m] for k in clients) + self._slots[m, 1].value for m in clients),
            relay=tuple(letters(self._slots[m, slot] for slot in relay_slots) for m in clients),
        )

    def _go_on(self, event: RoundClosed) -> list[Action]:
        if event.round < self._config.rounds:
            return self._start_round()
        self.state = State.DONE
        return [Finish()]

    def _hear_again(self, event: DownlinkHeard) -> list[Action]:
        """A node whose connection broke has subscribed once more."""
        return []

    def _count_stale(self, event: Event) -> list[Action]:
        """Duplicates, and what belongs to a past round or attempt, change nothing."""
        self.num_stale += 1
        return []


_TRANSITIONS: Mapping[tuple[State, type[Event]], Callable[..., list[Action]]] = {
    (State.JOINING, NodeJoined): ServerProtocol._join,
    (State.JOINING, DownlinkHeard): ServerProtocol._hear_downlink,
    (State.CONNECTING, NodeJoined): ServerProtocol._refuse,
    (State.CONNECTING, DownlinkHeard): ServerProtocol._hear_downlink,
    (State.CONNECTING, NodeConnected): ServerProtocol._connect,
    (State.COLLECTING, NodeJoined): ServerProtocol._refuse,
    (State.COLLECTING, DownlinkHeard): ServerProtocol._hear_again,
    (State.COLLECTING, SlotOver): ServerProtocol._end_slot,
    (State.COLLECTING, ReportArrived): ServerProtocol._take_report,
    (State.CLOSING, NodeJoined): ServerProtocol._refuse,
    (State.CLOSING, DownlinkHeard): ServerProtocol._hear_again,
    (State.CLOSING, SlotOver): ServerProtocol._count_stale,
    (State.CLOSING, ReportArrived): ServerProtocol._count_stale,
    (State.CLOSING, RoundClosed): ServerProtocol._go_on,
}
