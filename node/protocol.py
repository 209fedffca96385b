"""The node's side of the protocol: events in, actions out; no sockets, no clocks.

A round at one node:

    ModelArrived ─▶ Train        TRAINING
    Trained      ─▶ Transmit     LISTENING   slot 1 is out; waiting until slot 1 of every peer is over
    PeerSlotOver ─▶ Report       READY       the PS knows who was heard; waiting for it
    RelayAsked   ─▶ Relay        READY       one codeword is out
    RepeatAsked  ─▶ Transmit     LISTENING   the next attempt

Without early stop a node does not wait to be asked: it sends the codewords of all relay slots right after its report.
Peers may be ahead by a part of a round: what they send is kept until this node gets there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from dncfl.common.channel import Outcome
from dncfl.common.errors import ProtocolError
from dncfl.common.payload import Payload
from dncfl.common.tasks.model import Vector
from dncfl.node.trainer import LocalUpdate


class State(Enum):
    """Where a node stands in a round."""

    IDLE = auto()
    TRAINING = auto()
    LISTENING = auto()
    READY = auto()


@dataclass(frozen=True)
class ModelArrived:
    """The global model of a round came from the PS."""

    round: int
    theta: Vector = field(repr=False)


@dataclass(frozen=True)
class Trained:
    """Local training of the round in progress is done."""

    update: LocalUpdate = field(repr=False)


@dataclass(frozen=True)
class PeerSlotOver:
    """Slot 1 of a peer is over: its message was delivered, or nothing was."""

    sender: int
    round: int
    attempt: int
    outcome: Outcome
    message: Payload | None = field(repr=False)


@dataclass(frozen=True)
class RepeatAsked:
    """The PS asks for another attempt."""

    round: int
    attempt: int


@dataclass(frozen=True)
class RelayAsked:
    """The PS asks for the codeword of a relay slot."""

    round: int
    attempt: int
    slot: int


Event = ModelArrived | Trained | PeerSlotOver | RepeatAsked | RelayAsked


@dataclass(frozen=True)
class Train:
    """Start local training."""

    round: int
    theta: Vector = field(repr=False)


@dataclass(frozen=True)
class Transmit:
    """Publish the own message in slot 1."""

    round: int
    attempt: int
    message: Payload = field(repr=False)


@dataclass(frozen=True)
class Report:
    """Slot 1 is over: tell the PS how it went; None for those that this node does not listen to."""

    round: int
    attempt: int
    update: LocalUpdate = field(repr=False)
    heard: tuple[Outcome | None, ...]


@dataclass(frozen=True)
class Relay:
    """Send the codewords of `messages` in these slots."""

    round: int
    attempt: int
    slots: Sequence[int]
    messages: Mapping[int, Payload] = field(repr=False)


Action = Train | Transmit | Report | Relay


class NodeProtocol:
    """What one node does next, given what has arrived."""

    def __init__(self, node: int, num_clients: int, *, relay_slots: Sequence[int], waits_to_be_asked: bool) -> None:
        """`relay_slots`: the numbers of the slots that this node may relay in; without any it does not hear its peers.

        `waits_to_be_asked`: whether it relays slot by slot as the PS asks (early stop), or in all slots at once.
        """
        self.state = State.IDLE
        self.num_stale = 0
        self._node = node
        self._num_clients = num_clients
        self._relay_slots = relay_slots
        self._waits_to_be_asked = waits_to_be_asked
        self._peers = frozenset(range(num_clients)) - {node} if relay_slots else frozenset()
        self._round = 0
        self._attempt = 0
        self._update: LocalUpdate | None = None
        self._outcomes: dict[tuple[int, int], dict[int, Outcome]] = {}
        self._messages: dict[int, dict[int, Payload]] = {}

    def handle(self, event: Event) -> list[Action]:
        """The actions that an event leads to. Raises ProtocolError for one that cannot happen in this state."""
        handler = _TRANSITIONS.get((self.state, type(event)))
        if handler is None:
            raise ProtocolError(f"node {self._node}: {event} cannot happen in {self.state.name}, round {self._round}")
        return handler(self, event)

    def _start_round(self, event: ModelArrived) -> list[Action]:
        if event.round <= self._round:
            return self._count_stale(event)
        self._round, self._attempt, self._update = event.round, 1, None
        self._outcomes = {place: seen for place, seen in self._outcomes.items() if place[0] >= event.round}
        self._messages = {round: held for round, held in self._messages.items() if round >= event.round}
        self.state = State.TRAINING
        return [Train(event.round, event.theta)]

    def _transmit(self, event: Trained) -> list[Action]:
        self._update = event.update
        self._messages.setdefault(self._round, {})[self._node] = event.update.message
        return self._start_attempt(event.update)

    def _repeat(self, event: RepeatAsked) -> list[Action]:
        if self._update is None or event.round != self._round or event.attempt <= self._attempt:
            return self._count_stale(event)
        self._attempt = event.attempt
        return self._start_attempt(self._update)

    def _start_attempt(self, update: LocalUpdate) -> list[Action]:
        self.state = State.LISTENING
        return [Transmit(self._round, self._attempt, update.message), *self._report_when_slot_over()]

    def _keep(self, event: PeerSlotOver) -> list[Action]:
        if event.round < self._round or event.sender not in self._peers:
            return self._count_stale(event)
        seen = self._outcomes.setdefault((event.round, event.attempt), {})
        if event.sender in seen:
            return self._count_stale(event)
        seen[event.sender] = event.outcome
        if event.message is not None:
            self._messages.setdefault(event.round, {})[event.sender] = event.message
        return []

    def _listen(self, event: PeerSlotOver) -> list[Action]:
        return self._keep(event) + self._report_when_slot_over()

    def _report_when_slot_over(self) -> list[Action]:
        seen = self._outcomes.get((self._round, self._attempt), {})
        if len(seen) < len(self._peers) or self._update is None:
            return []
        self.state = State.READY
        heard = tuple(seen.get(sender) for sender in range(self._num_clients))
        report = Report(self._round, self._attempt, self._update, heard)
        if self._waits_to_be_asked or not self._relay_slots:
            return [report]
        return [report, self._relay_in(self._relay_slots)]

    def _relay(self, event: RelayAsked) -> list[Action]:
        if (event.round, event.attempt) != (self._round, self._attempt) or event.slot not in self._relay_slots:
            return self._count_stale(event)
        return [self._relay_in([event.slot])]

    def _relay_in(self, slots: Sequence[int]) -> Relay:
        held = self._messages[self._round]
        return Relay(self._round, self._attempt, slots, {sender: held[sender] for sender in sorted(held)})

    def _count_stale(self, event: Event) -> list[Action]:
        """Duplicates, and what belongs to a past round or attempt, change nothing."""
        self.num_stale += 1
        return []


_TRANSITIONS: Mapping[tuple[State, type[Event]], Callable[..., list[Action]]] = {
    (State.IDLE, ModelArrived): NodeProtocol._start_round,
    (State.IDLE, PeerSlotOver): NodeProtocol._keep,
    (State.TRAINING, Trained): NodeProtocol._transmit,
    (State.TRAINING, PeerSlotOver): NodeProtocol._keep,
    (State.LISTENING, PeerSlotOver): NodeProtocol._listen,
    (State.READY, PeerSlotOver): NodeProtocol._keep,
    (State.READY, RelayAsked): NodeProtocol._relay,
    (State.READY, RepeatAsked): NodeProtocol._repeat,
    (State.READY, ModelArrived): NodeProtocol._start_round,
}
