"""A whole run's protocols without a network: frames wait in a bag and arrive in any order that sockets could give them."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from dncfl.common.channel import Channel, DropLayer, Outcome
from dncfl.common.config import Config
from dncfl.common.message import encode_message
from dncfl.common.payload import Payload
from dncfl.common.scheme import network_code
from dncfl.common.trace import letters
from dncfl.common.wire import Report
from dncfl.node import protocol as node_side
from dncfl.node.protocol import NodeProtocol
from dncfl.node.trainer import LocalUpdate
from dncfl.server import actions as server_actions
from dncfl.server import events as server_events
from dncfl.server.protocol import ServerProtocol
from tests.unit.updates import format_of, update_of

SERVER = -1


@dataclass(frozen=True, kw_only=True)
class Mishaps:
    """Probabilities, at each step, that a node dies, that a dead one comes back, that a transmission is lost on a link,
    and that what is on its way from the PS to a node is lost with their connection, which is made anew."""

    death: float = 0.0
    return_: float = 0.0
    loss: float = 0.0
    break_: float = 0.0


def message_of(config: Config, node: int, round: int) -> Payload:
    """A message of six made-up levels."""
    levels = np.random.default_rng([node, round]).integers(0, config.levels, 6).astype(np.uint8)
    return encode_message(update_of(levels), config.field, round=round, sender=node)


@dataclass
class Ether:
    """Queues between each pair, in order within a queue as in TCP, in any order between queues."""

    config: Config
    channel: Channel
    rng: np.random.Generator
    mishaps: Mishaps = Mishaps()
    closed: list[server_actions.CloseRound] = field(default_factory=list)
    finished: bool = False
    given_up: str | None = None
    num_deaths: int = 0
    num_returns: int = 0
    num_lost: int = 0
    num_broken: int = 0
    num_expired: int = 0

    def __post_init__(self) -> None:
        config = self.config
        self.code = network_code(config, format_of(6))
        self.server = ServerProtocol(config, self.code)
        self.nodes = {m: self._new_node(m) for m in range(config.clients)}
        self.incarnations = dict.fromkeys(self.nodes, 1)
        self.drop_layers = [DropLayer(self.channel, receiver) for receiver in range(config.clients + 1)]
        self.queues: dict[tuple[int, int, str], deque[object]] = defaultdict(deque)

    def _new_node(self, node: int) -> NodeProtocol:
        return NodeProtocol(
            node,
            self.config.clients,
            relay_slots=self.code.all_relay_slots,
            waits_to_be_asked=self.config.early_stop,
        )

    def run(self) -> None:
        """From the first join to the last round."""
        for m in self.rng.permutation(self.config.clients):
            self._join(int(m))
        while not self.finished and self.given_up is None:
            if self.rng.random() < self.mishaps.death and self.nodes:
                self._die(int(self.rng.choice(list(self.nodes))))
            dead = [m for m in range(self.config.clients) if m not in self.nodes and m not in self.server.members]
            if dead and self.rng.random() < self.mishaps.return_:
                self._return(int(self.rng.choice(dead)))
            hearing = [m for m in self.nodes if m in self.server.members and self.server.members[m].hears]
            if self.mishaps.break_ and hearing and self.rng.random() < self.mishaps.break_:
                self._break_downlink(int(self.rng.choice(hearing)))
            waiting = [key for key, queue in self.queues.items() if queue]
            if waiting:
                sender, receiver, kind = key = waiting[self.rng.integers(len(waiting))]
                event = self.queues[key].popleft()
                if kind == "uplink" and self.rng.random() < self.mishaps.loss:
                    self.num_lost += 1
                elif kind != "uplink" or self._is_alive(sender, event):
                    self._deliver(receiver, event[1] if isinstance(event, tuple) else event)
            else:
                self.num_expired += 1
                assert self.num_expired < 10_000, self.server.place
                self._deliver(SERVER, server_events.Expired(self.server.place))

    def _is_alive(self, sender: int, event: object) -> bool:
        """Whether a transmission is of the life that the others know of its sender."""
        return isinstance(event, tuple) and event[0] == self.incarnations[sender]

    def _join(self, node: int) -> None:
        joined = server_events.NodeJoined(node, self.incarnations[node], b"%d" % node, ("h", node + 1))
        self._queue(node, SERVER, "control", joined)

    def _die(self, node: int) -> None:
        """What it has sent may still arrive, all or a part; what is on the way to it does not. The PS will hear of it."""
        del self.nodes[node]
        self.num_deaths += 1
        for (sender, receiver, _), queue in self.queues.items():
            if receiver == node:
                queue.clear()
            elif sender == node:
                for _ in range(self.rng.integers(len(queue) + 1)):
                    queue.pop()
        self._queue(node, SERVER, "death", server_events.NodeGone(node, "it died"))

    def _return(self, node: int) -> None:
        self.num_returns += 1
        self.nodes[node] = self._new_node(node)
        self.incarnations[node] += 1
        for (sender, _, kind), queue in self.queues.items():
            if sender == node and kind != "uplink":
                queue.clear()
        self._join(node)

    def _break_downlink(self, node: int) -> None:
        self.num_broken += len(self.queues[SERVER, node, "downlink"])
        self.queues[SERVER, node, "downlink"].clear()
        self._queue(node, SERVER, "downlink", server_events.DownlinkHeard(node, self.incarnations[node]))

    def _queue(self, sender: int, receiver: int, kind: str, event: object) -> None:
        if kind == "uplink":
            event = (self.incarnations[sender], event)
        if receiver == SERVER or receiver in self.nodes:
            self.queues[sender, receiver, kind].append(event)

    def _deliver(self, receiver: int, event: object) -> None:
        if receiver == SERVER:
            for action in self.server.handle(event):  # type: ignore[arg-type]  # the bag holds events of both sides
                self._server_acts(action)
        elif receiver in self.nodes:
            for step in self.nodes[receiver].handle(event):  # type: ignore[arg-type]  # as above
                self._node_acts(receiver, step)

    def _server_acts(self, action: server_actions.Action) -> None:
        everyone = range(self.config.clients)
        match action:
            case server_actions.Welcome(node):
                self._queue(node, SERVER, "control", server_events.NodeLoaded(node))
            case server_actions.Introduce(edition, members):
                for m in members:
                    self._queue(m, SERVER, "downlink", server_events.DownlinkHeard(m, members[m].incarnation))
                    self._queue(m, SERVER, "control", server_events.NodeConnected(m, edition))
            case (
                server_actions.EndWaiting()
                | server_actions.StartRound()
                | server_actions.AskRelay()
                | server_actions.AskRepeat()
            ):
                for m in everyone:
                    self._queue(SERVER, m, "downlink", _heard(action))
            case server_actions.Remind(node, incarnation, request):
                if incarnation == self.incarnations[node]:
                    self._queue(SERVER, node, "downlink", _heard(request))
            case server_actions.CloseRound(round):
                self.closed.append(action)
                self._queue(SERVER, SERVER, "worker", server_events.RoundClosed(round))
            case server_actions.GiveUp(reason):
                self.given_up = reason
            case server_actions.Finish():
                self.finished = True

    def _node_acts(self, node: int, action: node_side.Action) -> None:
        match action:
            case node_side.Train(round):
                message = message_of(self.config, node, round)
                update = LocalUpdate(message=message, train_loss=0.0, num_clipped=0, train_seconds=0.0, encode_seconds=0.0)
                self._queue(node, node, "worker", node_side.Trained(round, update))
            case node_side.Transmit(round, attempt, message):
                self._transmit(node, round, attempt, 1, (node,), message)
            case node_side.Report(round, attempt, _, heard):
                report = Report(
                    node=node,
                    round=round,
                    attempt=attempt,
                    heard=letters(heard),
                    train_seconds=0.0,
                    encode_seconds=0.0,
                    train_loss=0.0,
                    num_clipped=0,
                    bytes_from_peers=0,
                )
                self._queue(node, SERVER, "control", server_events.ReportArrived(report))
            case node_side.Relay(round, attempt, slots, messages):
                for slot, codeword in zip(slots, self.code.codewords(node, messages, slots), strict=True):
                    self._transmit(node, round, attempt, slot, tuple(messages), codeword)

    def _transmit(self, sender: int, round: int, attempt: int, slot: int, messages: tuple[int, ...], message: Payload) -> None:
        place = {"round": round, "attempt": attempt, "slot": slot, "sender": sender}
        outcome = self.drop_layers[self.config.clients].outcome(**place)
        payload = message if outcome is Outcome.DELIVERED else None
        event = server_events.SlotOver(sender, round, attempt, slot, outcome, messages, payload)
        self._queue(sender, SERVER, "uplink", event)
        if slot == 1 and self.code.relay_slots:
            for receiver in range(self.config.clients):
                if receiver != sender:
                    outcome = self.drop_layers[receiver].outcome(**place)
                    heard = message if outcome is Outcome.DELIVERED else None
                    self._queue(sender, receiver, "uplink", node_side.PeerSlotOver(sender, round, attempt, outcome, heard))


def _heard(
    action: server_actions.Request | server_actions.EndWaiting,
) -> object:
    """What a node makes of it that hears it."""
    match action:
        case server_actions.StartRound(round, members):
            return node_side.ModelArrived(round, np.zeros(1, dtype=np.float32), frozenset(members))
        case server_actions.AskRelay(round, attempt, slot):
            return node_side.RelayAsked(round, attempt, slot)
        case server_actions.AskRepeat(round, attempt, members):
            return node_side.RepeatAsked(round, attempt, frozenset(members))
        case server_actions.EndWaiting(round, attempt, senders, overdue):
            return node_side.WaitingEnds(round, attempt, frozenset(senders), overdue)
