"""The PS process: the one owner of its sockets, tasks and clocks. What to do is decided in `dncfl.server.protocol`.

Seconds of a round, which add up to `total`:

    training   local training at the node whose training and quantising took longest
    quantise   quantising and encoding at that node
    network    all else between publishing θ and the last frame: downlink, slots, relaying, elimination, waiting
    decode     solving for the messages that did not come directly
    aggregate  from messages to the new θ
    evaluate   testing the new θ
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic, perf_counter

import zmq

from dncfl.common import wire
from dncfl.common.config import Config
from dncfl.common.errors import DncflError, NodeFailed, WireError
from dncfl.common.message import SIDE_SYMBOLS
from dncfl.common.payload import Buffer
from dncfl.common.radio import Radio
from dncfl.common.running import run_beside
from dncfl.common.scheme import channel, network_code
from dncfl.common.security import NO_KEYS, Security
from dncfl.common.sockets import Socket
from dncfl.common.tasks.training import TrainingStopped
from dncfl.common.trace import AttemptTrace
from dncfl.server import protocol
from dncfl.server.global_model import Model
from dncfl.server.observer import Observer
from dncfl.server.protocol import ServerProtocol
from dncfl.server.records import RoundRecord, attempt_figures, local_figures

log = logging.getLogger(__name__)


RecordRound = Callable[[RoundRecord, Sequence[AttemptTrace]], None]


class ServerProcess:
    """A PS that runs one run from its first node to its last round."""

    def __init__(
        self, config: Config, model: Model, record: RecordRound, observer: Observer, security: Security = NO_KEYS
    ) -> None:
        """`record` stores a round, in a thread; the next round starts when it has returned."""
        self._config = config
        self._model = model
        self._record = record
        self._observer = observer
        self._security = security
        code = network_code(config)
        self._protocol = ServerProtocol(config, code)
        self._code = code
        self._num_symbols = SIDE_SYMBOLS + model.num_parameters
        self._radio = Radio(code, channel(config), config.clients, self._num_symbols)
        self._events: asyncio.Queue[protocol.Event] = asyncio.Queue()
        self._ready_topics = {b"\x01" + wire.ready_topic(node): node for node in range(config.clients)}
        self._addresses: dict[int, bytes] = {}
        self._last_heard: dict[int, float] = {}
        self._last_progress = monotonic()
        self._busy: set[int] = set()
        self._leaving = threading.Event()
        self._bytes: dict[str, Counter[str]] = {"down": Counter(), "up": Counter(), "peers": Counter()}
        self._round_started = 0.0
        self._num_rejected = 0

    @property
    def counts(self) -> dict[str, int]:
        """Frames that were refused as malformed, and those that came twice or too late."""
        return {"rejected_frames": self._num_rejected, "stale_frames": self._protocol.num_stale}

    @contextmanager
    def listening(self, host: str, port: int | None = None, downlink_port: int | None = None) -> Iterator[int]:
        """Open the sockets on a local address, on free ports unless given, and close them at the end; gives the port to join.

        Raises NetworkError when an address cannot be used, ConfigError when strangers could join there.
        """
        security = self._security
        with security.context() as context:
            self._control, self._downlink = Socket(context, zmq.ROUTER, security), Socket(context, zmq.XPUB, security)
            self._uplink = Socket(context, zmq.SUB, security)
            self._control.set_option(zmq.ROUTER_HANDOVER, 1)  # a node whose connection broke comes back under its name
            self._uplink.expect_frames_of(2 * self._num_symbols)
            control_port = self._control.bind(host, port)
            self._downlink_port = self._downlink.bind(host, downlink_port)
            with ThreadPoolExecutor(1, thread_name_prefix="decode") as self._worker:
                try:
                    yield control_port
                finally:
                    self._leaving.set()

    async def serve(self) -> None:
        """Serve until the last round is done. Whatever ends it, the nodes are told to stop.

        Raises NodeFailed when a node stops, StorageError when the run folder fails.
        """
        self._observer.waiting(self._protocol.missing)
        stop = wire.Stop(completed=False, reason="it was stopped")
        try:
            await run_beside(
                self._consume(),
                self._control.read(self._take_control),
                self._downlink.read(self._take_subscription),
                self._uplink.read(self._take_transmission),
                self._watch_silence(),
            )
            stop = wire.Stop(completed=True, reason="all rounds are done")
        except DncflError as error:
            stop = wire.Stop(completed=False, reason=str(error)[:2000])
            raise
        finally:
            for address in self._addresses.values():
                self._send(address, stop)

    async def _consume(self) -> None:
        """The run: each event leads to actions, one after the other, until the last round is done."""
        while True:
            event = await self._events.get()
            self._last_progress = monotonic()
            log.debug("%s", event)
            for action in self._protocol.handle(event):
                if isinstance(action, protocol.Finish):
                    return
                await self._perform(action)
            if not self._events.empty():
                continue  # who watches need not see every step
            if self._protocol.state in (protocol.State.JOINING, protocol.State.CONNECTING):
                self._observer.waiting(self._protocol.missing)
            elif self._protocol.state is protocol.State.COLLECTING:
                self._observer.communicating(*self._protocol.progress)

    async def _perform(self, action: protocol.Action) -> None:
        match action:
            case protocol.Welcome(node, address):
                self._addresses[node] = address
                self._last_heard[node] = monotonic()
                welcome = wire.Welcome(downlink_port=self._downlink_port, num_parameters=self._model.num_parameters)
                self._send(address, welcome, self._config.to_json().encode())
                log.info("node %d has joined", node)
            case protocol.Refuse(address, reason):
                log.warning("refused a node: %s", reason)
                self._send(address, wire.Refused(reason=reason))
            case protocol.Introduce(endpoints):
                hosts, ports = zip(*endpoints, strict=True)
                for node, (host, port) in enumerate(endpoints):
                    self._uplink.connect(host, port, node)
                self._uplink.subscribe(wire.TOPIC_MESSAGE, wire.TOPIC_CODEWORD, wire.ready_topic(wire.SERVER_NAME))
                for address in self._addresses.values():
                    self._send(address, wire.Peers(hosts=hosts, ports=ports))
            case protocol.StartRound(round):
                log.info("round %d starts", round)
                self._round_started = perf_counter()
                self._publish("model", wire.Model(round=round), self._model.theta.astype("<f4", copy=False).data)
            case protocol.AskRelay(round, attempt, slot):
                self._publish("control", wire.RelaySlot(round=round, attempt=attempt, slot=slot))
            case protocol.AskRepeat(round, attempt):
                log.info("round %d needs attempt %d", round, attempt)
                self._publish("control", wire.Repeat(round=round, attempt=attempt))
            case protocol.CloseRound(round):
                loop, traffic = asyncio.get_running_loop(), self._traffic()
                self._observer.round_done(await loop.run_in_executor(self._worker, self._close_round, action, traffic))
                self._events.put_nowait(protocol.RoundClosed(round))

    def _traffic(self) -> dict[str, dict[str, int]]:
        """The bytes since the last call, by direction and kind."""
        traffic = {direction: dict(counts) for direction, counts in self._bytes.items()}
        for counts in self._bytes.values():
            counts.clear()
        return traffic

    def _close_round(self, action: protocol.CloseRound, traffic: dict[str, dict[str, int]]) -> RoundRecord:
        """Decode, aggregate, evaluate and record, in a thread of its own."""
        reports = action.reports
        collected = perf_counter()
        messages = action.decoder.messages()
        decoded = perf_counter()
        step = self._model.step(messages, action.round, self._stop_when_leaving)
        training, quantise = max(((r.train_seconds, r.encode_seconds) for r in reports), key=sum)
        record = RoundRecord(
            round=action.round,
            accuracy=step.accuracy,
            loss=step.loss,
            recovered=tuple(messages),
            direct=action.direct,
            rank=action.decoder.rank,
            **local_figures(reports, self._model.num_parameters),
            **attempt_figures(action.attempts, self._code, self._model.num_parameters),
            bytes=traffic,
            seconds={
                "training": training,
                "quantise": quantise,
                "network": collected - self._round_started - training - quantise,
                "decode": decoded - collected,
                "aggregate": step.aggregate_seconds,
                "evaluate": step.evaluate_seconds,
                "total": perf_counter() - self._round_started,
            },
        )
        self._record(record, action.attempts)
        self._model.theta = step.theta
        return record

    def _stop_when_leaving(self) -> None:
        if self._leaving.is_set():
            raise TrainingStopped

    def _take_control(self, frames: list[Buffer]) -> None:
        try:
            if len(frames) != 2:
                raise WireError(f"{len(frames) - 1} frames where one is due")
            header = wire.decode(frames[1], wire.FROM_NODE)
        except WireError as error:
            self._reject(error)
            return
        self._bytes["up"]["control"] += len(frames[1])
        self._take_header(bytes(frames[0]), header)

    def _take_header(self, address: bytes, header: wire.FromNode) -> None:
        if not isinstance(header, wire.Alive) and not self._control.is_from(header.node):
            error = WireError(f"{header.kind} of node {header.node} under a key that is not its own")
            self._reject(error)
            if isinstance(header, wire.Join):
                self._send(address, wire.Refused(reason=f"the key is not that of node {header.node}"))
            return
        node = next((node for node, known in self._addresses.items() if known == address), None)
        if node is not None:
            self._last_heard[node] = monotonic()
        if isinstance(header, wire.Join):
            self._events.put_nowait(protocol.NodeJoined(header.node, address, (header.host, header.port)))
        elif isinstance(header, wire.Alive):
            if node is not None:
                (self._busy.add if header.busy else self._busy.discard)(node)
            self._send(address, wire.Alive())
        elif node is None or header.node != node:
            self._reject(WireError(f"{header.kind} of node {header.node} from somebody else"))
        elif isinstance(header, wire.Failed):
            raise NodeFailed(f"node {node} failed: {header.reason}")
        elif isinstance(header, wire.Connected):
            self._events.put_nowait(protocol.NodeConnected(node))
        elif len(header.heard) != self._config.clients:
            self._reject(WireError(f"a report about {len(header.heard)} nodes"))
        else:
            self._bytes["peers"]["message"] += header.bytes_from_peers
            self._events.put_nowait(protocol.ReportArrived(header))

    def _take_subscription(self, frames: list[Buffer]) -> None:
        """Subscriptions to the downlink: a node's own topic confirms that it hears θ."""
        if (node := self._ready_topics.get(bytes(frames[0]))) is not None:
            self._events.put_nowait(protocol.DownlinkHeard(node))

    def _take_transmission(self, frames: list[Buffer]) -> None:
        try:
            reception = self._radio.receive(frames)
        except WireError as error:
            self._reject(error)
            return
        header = reception.header
        kind = "message" if header.slot == 1 else "codeword"
        self._bytes["up"][kind] += sum(map(len, frames))
        place = (header.sender, header.round, header.attempt, header.slot)
        self._events.put_nowait(protocol.SlotOver(*place, reception.outcome, header.messages, reception.payload))

    async def _watch_silence(self) -> None:
        """Raise NodeFailed when a node is silent, or all are idle and nothing comes, for longer than the run's patience."""
        patience = self._config.patience
        while True:
            await asyncio.sleep(patience / 10)
            now = monotonic()
            silent = [node for node, heard in self._last_heard.items() if now - heard > patience]
            if silent:
                raise NodeFailed(f"node {silent[0]} has been silent for {patience:g} s and counts as gone")
            if self._busy:
                self._last_progress = now
            if (awaited := self._protocol.awaited) and now - self._last_progress > patience:
                raise NodeFailed(f"nothing has come for {patience:g} s though no node is busy; missing: {awaited}")

    def _send(self, address: bytes, header: wire.Header, *frames: bytes) -> None:
        encoded = wire.encode(header)
        self._bytes["down"]["control"] += len(encoded) + sum(map(len, frames))
        self._control.send(address, encoded, *frames)

    def _publish(self, kind: str, header: wire.Header, *frames: memoryview) -> None:
        encoded = wire.encode(header)
        size = len(wire.TOPIC_DOWNLINK) + len(encoded) + sum(frame.nbytes for frame in frames)
        self._bytes["down"][kind] += size * self._config.clients
        self._downlink.send(wire.TOPIC_DOWNLINK, encoded, *frames)

    def _reject(self, error: WireError) -> None:
        self._num_rejected += 1
        log.warning("rejected a frame: %s", error)
