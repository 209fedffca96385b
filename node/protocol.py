"""The node's side of the protocol: events in, actions out; no sockets, no clocks.

A round at one node:

    ModelArrived   ─▶ Train        TRAINING
    Trained        ─▶ Transmit     LISTENING   slot 1 is out; waiting until slot 1 of every peer is over
    PeerSlotOver   ─▶ Report       READY       the PS knows who was heard; waiting for it
    RelayAsked     ─▶ Relay        READY       one codeword is out
    RepeatAsked    ─▶ Transmit     LISTENING   the next attempt
    TrainingFailed ─▶ GiveUpRound  IDLE        waiting for the next round

Without early stop a node does not wait to be asked: it sends the codewords of all relay slots right after its report.
Peers may be ahead by a part of a round: what they send is kept until this node gets there. The PS alone has a clock: it
tells whom not to wait for, and what such a peer sends after the report counts no more. A link that lost something is not
waited for until something comes over it again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from dncfl.common.channel import Outcome
from dncfl.common.payload import Payload
from dncfl.common.tasks.model import Vector
from dncfl.node.trainer import LocalUpdate

MAX_AHEAD = 2
"""Attempts that peers may be ahead of this node; what claims to be of others yet is not kept, so that memory is bounded."""


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
    members: frozenset[int]


@dataclass(frozen=True)
class Trained:
    """Local training of a round is done."""

    round: int
    update: LocalUpdate = field(repr=False)


@dataclass(frozen=True)
class TrainingFailed:
    """Local training of a round ended by an error."""

    round: int
    reason: str


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
    members: frozenset[int]


@dataclass(frozen=True)
class RelayAsked:
    """The PS asks for the codeword of a relay slot."""

    round: int
    attempt: int
    slot: int


@dataclass(frozen=True)
class WaitingEnds:
    """The PS has given up slot 1 of these senders in an attempt: they send nothing, or they are overdue."""

    round: int
    attempt: int
    senders: frozenset[int]
    overdue: bool = False


Event = ModelArrived | Trained | TrainingFailed | PeerSlotOver | RepeatAsked | RelayAsked | WaitingEnds


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


@dataclass(frozen=True)
class GiveUpRound:
    """Tell the PS that this node takes no part in the round."""

    round: int
    reason: str


Action = Train | Transmit | Report | Relay | GiveUpRound


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
        self._last_relayed = 0
        self._awaited: frozenset[int] = frozenset()
        self._silent: set[int] = set()
        self._update: LocalUpdate | None = None
        self._outcomes: dict[tuple[int, int], dict[int, Outcome]] = {}
        self._messages: dict[int, dict[int, Payload]] = {}

    def handle(self, event: Event) -> list[Action]:
        """The actions that an event leads to."""
        return _TRANSITIONS[self.state, type(event)](self, event)

    def _start_round(self, event: ModelArrived) -> list[Action]:
        if event.round <= self._round:
            return self._count_stale(event)
        self._round, self._attempt, self._update = event.round, 1, None
        self._awaited = self._peers & event.members
        self._silent &= event.members  # who comes back does so over a new connection
        self._outcomes = {place: seen for place, seen in self._outcomes.items() if place[0] >= event.round}
        self._messages = {round: held for round, held in self._messages.items() if round >= event.round}
        self.state = State.TRAINING
        return [Train(event.round, event.theta)]

    def _transmit(self, event: Trained) -> list[Action]:
        if event.round != self._round:
            return self._count_stale(event)
        self._update = event.update
        self._messages.setdefault(self._round, {})[self._node] = event.update.message
        return self._start_attempt(event.update)

    def _give_up(self, event: TrainingFailed) -> list[Action]:
        if event.round != self._round:
            return self._count_stale(event)
        self.state = State.IDLE
        return [GiveUpRound(event.round, event.reason)]

    def _repeat(self, event: RepeatAsked) -> list[Action]:
        if self._update is None or event.round != self._round or event.attempt <= self._attempt:
            return self._count_stale(event)
        self._attempt = event.attempt
        self._awaited = self._peers & event.members
        return self._start_attempt(self._update)

    def _start_attempt(self, update: LocalUpdate) -> list[Action]:
        self.state = State.LISTENING
        self._last_relayed = 0
        return [Transmit(self._round, self._attempt, update.message), *self._report_when_slot_over()]

    def _keep(self, event: PeerSlotOver) -> list[Action]:
        self._silent.discard(event.sender)
        if event.round < self._round or event.sender not in self._peers:
            return self._count_stale(event)
        place = (event.round, event.attempt)
        if not self._has_room(place):
            return self._count_stale(event)
        seen = self._outcomes.setdefault(place, {})
        if event.sender in seen:
            return self._count_stale(event)
        seen[event.sender] = event.outcome
        if event.message is not None:
            self._messages.setdefault(event.round, {})[event.sender] = event.message
        return []

    def _has_room(self, place: tuple[int, int]) -> bool:
        """Whether a place may be kept; of those ahead the nearest are, so that nobody fills the room with what never comes."""
        ahead = sorted({*self._outcomes, place})[-MAX_AHEAD - 1 :]
        if place in self._outcomes or len(ahead) <= MAX_AHEAD or ahead[0] <= (self._round, self._attempt):
            return True
        if place == (farthest := ahead[-1]):
            return False
        del self._outcomes[farthest]
        if all(round != farthest[0] for round, _ in self._outcomes):
            self._messages.pop(farthest[0], None)
        return True

    def _listen(self, event: PeerSlotOver) -> list[Action]:
        return self._keep(event) + self._report_when_slot_over()

    def _stop_waiting(self, event: WaitingEnds) -> list[Action]:
        if event.round != self._round or event.attempt < self._attempt:
            return self._count_stale(event)
        seen = self._outcomes.setdefault((event.round, event.attempt), {})
        for sender in self._peers & event.senders:
            if sender not in seen:
                seen[sender] = Outcome.LOST
                if event.overdue:
                    self._silent.add(sender)
        return self._report_when_slot_over() if self.state is State.LISTENING else []

    def _report_when_slot_over(self) -> list[Action]:
        seen = self._outcomes.setdefault((self._round, self._attempt), {})
        if self._awaited - self._silent - seen.keys() or self._update is None:
            return []
        self.state = State.READY
        for sender in self._peers - seen.keys():
            seen[sender] = Outcome.LOST  # from now on: what this node holds is what it reports
        heard = tuple(seen.get(sender) for sender in range(self._num_clients))
        report = Report(self._round, self._attempt, self._update, heard)
        if self._waits_to_be_asked or not self._relay_slots:
            return [report]
        return [report, self._relay_in(self._relay_slots)]

    def _relay(self, event: RelayAsked) -> list[Action]:
        is_due = (event.round, event.attempt) == (self._round, self._attempt) and event.slot > self._last_relayed
        if not is_due or event.slot not in self._relay_slots:
            return self._count_stale(event)
        self._last_relayed = event.slot
        return [self._relay_in([event.slot])]

    def _relay_in(self, slots: Sequence[int]) -> Relay:
        held = self._messages[self._round]
        return Relay(self._round, self._attempt, slots, {sender: held[sender] for sender in sorted(held)})

    def _count_stale(self, event: Event) -> list[Action]:
        """Duplicates, and what belongs to a past round or attempt, change nothing."""
        self.num_stale += 1
        return []


_EVENTS_AT_ANY_TIME: Mapping[type[Event], Callable[..., list[Action]]] = {
    ModelArrived: NodeProtocol._start_round,
    Trained: NodeProtocol._count_stale,
    TrainingFailed: NodeProtocol._count_stale,
    PeerSlotOver: NodeProtocol._keep,
    RepeatAsked: NodeProtocol._count_stale,
    RelayAsked: NodeProtocol._count_stale,
    WaitingEnds: NodeProtocol._stop_waiting,
}
"""What an event leads to unless the state says otherwise below: the PS may have gone on without this node."""

_TRANSITIONS: Mapping[tuple[State, type[Event]], Callable[..., list[Action]]] = {
    **{(state, event): handler for state in State for event, handler in _EVENTS_AT_ANY_TIME.items()},
    (State.TRAINING, Trained): NodeProtocol._transmit,
    (State.TRAINING, TrainingFailed): NodeProtocol._give_up,
    (State.LISTENING, PeerSlotOver): NodeProtocol._listen,
    (State.LISTENING, RepeatAsked): NodeProtocol._repeat,
    (State.READY, RepeatAsked): NodeProtocol._repeat,
    (State.READY, RelayAsked): NodeProtocol._relay,
}
