"""A whole run's protocols without a network: frames wait in a bag and arrive in any order that sockets could give them."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from dncfl.common.channel import Channel, DropLayer, Outcome
from dncfl.common.config import Config
from dncfl.common.payload import Payload
from dncfl.common.scheme import network_code
from dncfl.common.trace import letters
from dncfl.common.wire import Report
from dncfl.node import protocol as node_side
from dncfl.node.protocol import NodeProtocol
from dncfl.node.trainer import LocalUpdate
from dncfl.server import protocol as server_side
from dncfl.server.protocol import ServerProtocol

SERVER = -1


def message_of(config: Config, node: int, round: int) -> Payload:
    """A made-up message: six symbols of the field."""
    symbols = np.random.default_rng([node, round]).integers(0, config.field, 6).astype(np.uint16)
    return Payload.of(symbols, config.field)


@dataclass
class Ether:
    """Queues between each pair, in order within a queue as in TCP, in any order between queues."""

    config: Config
    channel: Channel
    rng: np.random.Generator
    closed: list[server_side.CloseRound] = field(default_factory=list)
    finished: bool = False

    def __post_init__(self) -> None:
        config = self.config
        self.code = network_code(config)
        self.server = ServerProtocol(config, self.code)
        slots = self.code.all_relay_slots
        self.nodes = [
            NodeProtocol(m, config.clients, relay_slots=slots, waits_to_be_asked=config.early_stop)
            for m in range(config.clients)
        ]
        self.drop_layers = [DropLayer(self.channel, receiver) for receiver in range(config.clients + 1)]
        self.queues: dict[tuple[int, int, str], deque[object]] = defaultdict(deque)

    def run(self) -> None:
        """From the first join to the last round."""
        for m in self.rng.permutation(self.config.clients):
            self._queue(int(m), SERVER, "control", server_side.NodeJoined(int(m), b"%d" % m, ("h", int(m))))
        while any(self.queues.values()):
            waiting = [key for key, queue in self.queues.items() if queue]
            key = waiting[self.rng.integers(len(waiting))]
            self._deliver(key[1], self.queues[key].popleft())

    def _queue(self, sender: int, receiver: int, kind: str, event: object) -> None:
        self.queues[sender, receiver, kind].append(event)

    def _deliver(self, receiver: int, event: object) -> None:
        if receiver == SERVER:
            for action in self.server.handle(event):  # type: ignore[arg-type]  # the bag holds events of both sides
                self._server_acts(action)
        else:
            for step in self.nodes[receiver].handle(event):  # type: ignore[arg-type]
                self._node_acts(receiver, step)

    def _server_acts(self, action: server_side.Action) -> None:
        everyone = range(self.config.clients)
        match action:
            case server_side.Introduce():
                for m in everyone:
                    self._queue(m, SERVER, "downlink", server_side.DownlinkHeard(m))
                    self._queue(m, SERVER, "control", server_side.NodeConnected(m))
            case server_side.StartRound(round):
                for m in everyone:
                    theta = np.zeros(1, dtype=np.float32)
                    self._queue(SERVER, m, "downlink", node_side.ModelArrived(round, theta))
            case server_side.AskRelay(round, attempt, slot):
                for m in everyone:
                    self._queue(SERVER, m, "downlink", node_side.RelayAsked(round, attempt, slot))
            case server_side.AskRepeat(round, attempt):
                for m in everyone:
                    self._queue(SERVER, m, "downlink", node_side.RepeatAsked(round, attempt))
            case server_side.CloseRound(round):
                self.closed.append(action)
                self._queue(SERVER, SERVER, "worker", server_side.RoundClosed(round))
            case server_side.Finish():
                self.finished = True

    def _node_acts(self, node: int, action: node_side.Action) -> None:
        match action:
            case node_side.Train(round):
                message = message_of(self.config, node, round)
                update = LocalUpdate(message=message, train_loss=0.0, num_clipped=0, train_seconds=0.0, encode_seconds=0.0)
                self._queue(node, node, "worker", node_side.Trained(update))
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
                self._queue(node, SERVER, "control", server_side.ReportArrived(report))
            case node_side.Relay(round, attempt, slots, messages):
                for slot, codeword in zip(slots, self.code.codewords(node, messages, slots), strict=True):
                    self._transmit(node, round, attempt, slot, tuple(messages), codeword)

    def _transmit(self, sender: int, round: int, attempt: int, slot: int, messages: tuple[int, ...], message: Payload) -> None:
        place = {"round": round, "attempt": attempt, "slot": slot, "sender": sender}
        outcome = self.drop_layers[self.config.clients].outcome(**place)
        payload = message if outcome is Outcome.DELIVERED else None
        event = server_side.SlotOver(sender, round, attempt, slot, outcome, messages, payload)
        self._queue(sender, SERVER, "uplink", event)
        if slot == 1 and self.code.relay_slots:
            for receiver in range(self.config.clients):
                if receiver != sender:
                    outcome = self.drop_layers[receiver].outcome(**place)
                    heard = message if outcome is Outcome.DELIVERED else None
                    self._queue(sender, receiver, "uplink", node_side.PeerSlotOver(sender, round, attempt, outcome, heard))
