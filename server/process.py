"""The PS process: the one owner of its sockets, tasks and clocks. What to do is decided in `dncfl.server.protocol`."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import TypeVar

import numpy as np
import zmq

from dncfl.common import wire
from dncfl.common.config import Config
from dncfl.common.errors import DncflError, NodeFailed, WireError
from dncfl.common.fault_injection import FaultInjector
from dncfl.common.faults import seconds_of
from dncfl.common.payload import BYTES_OF_ESCAPE, Buffer
from dncfl.common.radio import Radio
from dncfl.common.running import run_beside
from dncfl.common.scheme import channel, network_code
from dncfl.common.security import NO_KEYS, Security
from dncfl.common.sockets import Socket, queue_for
from dncfl.common.words import nodes_in_words
from dncfl.server import actions, events
from dncfl.server.closing import RecordRound, RoundCloser
from dncfl.server.global_model import Model
from dncfl.server.liveness import Liveness
from dncfl.server.observer import Observer
from dncfl.server.protocol import ServerProtocol, State
from dncfl.server.verification import Verdict

log = logging.getLogger(__name__)

T = TypeVar("T")


WATCH_SECONDS = 0.25

MOST_QUEUED = 1000
"""Control messages that wait for one who does not read them: far more than a node is ever sent at a time."""

SUSPENDED_SECONDS = 1.0
"""When the PS looks at the clock so much too late, it stood still itself: what others have sent meanwhile is not read yet."""

DOWNLINK_AT_ONCE = 3
"""Messages that the PS may send before all nodes have read the first: a model, and whom not to wait for."""


class ServerProcess:
    """A PS that runs one run from its first node, after the rounds that the model has done, to its last round."""

    def __init__(
        self,
        config: Config,
        model: Model,
        record: RecordRound,
        observer: Observer,
        security: Security = NO_KEYS,
        faults: FaultInjector | None = None,
    ) -> None:
        """`record` is called in a thread."""
        self._config = config
        self._model = model
        self._observer = observer
        self._security = security
        code = network_code(config)
        self._messages = model.message_format
        self._faults = faults or FaultInjector([], None)
        self._closer = RoundCloser(config, code, model, record, self._faults)
        self._protocol = ServerProtocol(config, code, model.rounds_done)
        self._code = code
        self._radio = Radio(
            code,
            channel(config),
            config.clients,
            self._messages,
            last_round=config.rounds,
            last_attempt=config.max_attempts,
        )
        self._events: asyncio.Queue[events.Event] = asyncio.Queue()
        self._nodes_by_address: dict[bytes, int] = {}
        self._liveness = Liveness(config)
        self._connected: set[tuple[str, int]] = set()
        self._gone: set[int] = set()
        self._last_event = monotonic()
        self._peers_now: wire.Peers | None = None
        self._bytes: dict[str, Counter[str]] = {"down": Counter(), "up": Counter(), "peers": Counter()}
        self._round_started = 0.0
        self._num_rejected = 0

    @property
    def counts(self) -> dict[str, int]:
        """Frames that were refused as malformed, and those that came twice or too late."""
        return {
            "rejected_frames": self._num_rejected + self._protocol.num_rejected,
            "damaged_frames": self._radio.num_damaged,
            "stale_frames": self._protocol.num_stale,
        }

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
            self._control.queue_at_most(MOST_QUEUED)
            self._downlink.set_option(zmq.XPUB_VERBOSE, 1)  # a node may subscribe anew before its broken connection is noticed
            self._downlink.queue_at_most(queue_for(DOWNLINK_AT_ONCE, 4 * self._messages.num_values))
            self._uplink.expect_frames_of(BYTES_OF_ESCAPE * self._code.most_symbols(self._messages))
            self._uplink.subscribe(wire.TOPIC_MESSAGE, wire.TOPIC_CODEWORD, wire.ready_topic(wire.SERVER_NAME))
            control_port = self._control.bind(host, port)
            self._downlink_port = self._downlink.bind(host, downlink_port)
            with ThreadPoolExecutor(1, thread_name_prefix="decode") as self._worker:
                try:
                    yield control_port
                finally:
                    self._closer.leave()

    async def serve(self) -> None:
        """Serve until the last round is done. Whatever ends it, the nodes are told to stop.

        Raises NodeFailed when a node stops, StorageError when the run folder fails.
        """
        self._observer.waiting(self._protocol.missing)
        self._started = monotonic()
        stop = wire.Stop(completed=False, reason="it was stopped")
        try:
            await run_beside(
                self._consume(),
                self._control.read(self._take_control),
                self._downlink.read(self._take_subscription),
                self._uplink.read(self._take_transmission),
                self._watch_deadlines(),
            )
            stop = wire.Stop(completed=True, reason="all rounds are done")
        except DncflError as error:
            stop = wire.Stop(completed=False, reason=str(error)[:2000])
            raise
        finally:
            for address in self._nodes_by_address:
                self._send(address, stop)

    def node_ended(self, node: int, reason: str, *, for_good: bool) -> None:
        """Tell that the process of a node is over, and how ("it …"); `for_good`: nobody will start it again."""
        self._events.put_nowait(events.NodeGone(node, reason, for_good))

    async def _consume(self) -> None:
        """The run: each event leads to actions, one after the other, until the last round is done."""
        while True:
            event = await self._events.get()
            self._last_event = monotonic()
            log.debug("%s", event)
            for action in self._protocol.handle(event):
                if isinstance(action, actions.Finish):
                    return
                await self._perform(action)
            if not self._events.empty():
                continue  # who watches need not see every step
            if self._protocol.state in (State.JOINING, State.CONNECTING):
                self._observer.waiting(self._protocol.missing)
            elif self._protocol.state is State.COLLECTING:
                self._observer.communicating(self._protocol.progress)

    async def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.Welcome(node, address):
                is_new = address not in self._nodes_by_address  # or it has not heard the welcome before
                self._nodes_by_address[address] = node
                self._liveness.joins(node, monotonic())
                sizes = np.array(self._model.tensor_sizes, dtype="<u4").tobytes()
                welcome = wire.Welcome(downlink_port=self._downlink_port)
                self._send(address, welcome, self._config.to_json().encode(), sizes)
                log.info("node %d has joined", node)
                if node in self._gone:
                    self._gone.discard(node)
                    self._observer.notice(f"node {node} is here again, and takes part once it has loaded its data")
                elif is_new:
                    self._observer.joined(node)
            case actions.Refuse(address, reason):
                log.warning("refused a node: %s", reason)
                self._send(address, wire.Refused(reason=reason))
            case actions.Dismiss(node, member, reason):
                self._nodes_by_address.pop(member.address, None)
                self._liveness.leaves(node)
                self._gone.add(node)
                if member.endpoint in self._connected:
                    self._connected.remove(member.endpoint)
                    self._uplink.disconnect(*member.endpoint)
                self._observer.warning(f"node {node} is gone: {reason}")
            case actions.Warn(text):
                self._observer.warning(text)
            case actions.GiveUp(reason):
                raise NodeFailed(reason)
            case actions.Introduce(edition, members):
                self._introduce(edition, members)
            case actions.StartRound(round, members):
                log.info("round %d starts", round)
                await self._meet_faults("before-slot-1", round)
                self._round_started = perf_counter()
                for node in members:
                    self._liveness.begins_work(node, monotonic())
                self._request(action)
                await self._meet_faults("after-slot-1", round)
            case actions.AskRelay(round, _, slot):
                await self._meet_faults(f"before-slot-{slot}", round)
                self._request(action)
                await self._meet_faults(f"after-slot-{slot}", round)
            case actions.AskRepeat(round, attempt, _):
                log.info("round %d needs attempt %d", round, attempt)
                self._request(action)
            case actions.Remind(node, incarnation, request):
                log.info("node %d hears the PS again", node)
                self._request(request, wire.ready_topic(node, incarnation))
            case actions.EndWaiting(round, attempt, senders, overdue):
                self._publish("control", wire.StopWaiting(round=round, attempt=attempt, senders=senders, overdue=overdue))
            case actions.CloseRound(round):
                await self._meet_faults("before-decode", round)
                collected = perf_counter()
                verdict = await self._in_thread(self._closer.decode, action)
                missing = set(action.decoder.recoverable()) - verdict.messages.keys()
                if (missing or not verdict.settled) and not action.final:
                    self._events.put_nowait(events.RoundDoubted(round, verdict.settled))
                    return
                self._warn_of_suspects(round, verdict)
                traffic = self._traffic()  # here, since the event loop counts it
                times = (self._round_started, collected)
                self._observer.round_done(await self._in_thread(self._closer.close, action, verdict, *times, traffic))
                await self._meet_faults("after-checkpoint", round)
                self._events.put_nowait(events.RoundClosed(round))

    def _request(self, request: actions.Request, topic: bytes = wire.TOPIC_DOWNLINK) -> None:
        """Publish what nodes are to do next, to all of them or to the one whose own topic it is."""
        match request:
            case actions.StartRound(round, members):
                theta = self._model.theta.astype("<f4", copy=False).data
                self._publish("model", wire.Model(round=round, members=members), theta, topic=topic)
            case actions.AskRelay(round, attempt, slot):
                self._publish("control", wire.RelaySlot(round=round, attempt=attempt, slot=slot), topic=topic)
            case actions.AskRepeat(round, attempt, members):
                self._publish("control", wire.Repeat(round=round, attempt=attempt, members=members), topic=topic)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    async def _meet_faults(self, point: str, round: int) -> None:
        for fault in self._faults.strike(point, round):
            await asyncio.sleep(seconds_of(fault))

    def _introduce(self, edition: int, members: Mapping[int, actions.Member]) -> None:
        for node, member in members.items():
            if member.endpoint not in self._connected:
                self._connected.add(member.endpoint)
                self._uplink.connect(*member.endpoint, node)
        hosts, ports = zip(*(member.endpoint for member in members.values()), strict=True)
        self._peers_now = wire.Peers(
            edition=edition,
            nodes=tuple(members),
            incarnations=tuple(member.incarnation for member in members.values()),
            hosts=hosts,
            ports=ports,
        )
        for member in members.values():
            self._send(member.address, self._peers_now)

    def _introduce_again(self, node: int, address: bytes, edition: int) -> None:
        """Send a node the list of peers that it ought to have: a connection that broke has lost it."""
        now, member = self._peers_now, self._protocol.members.get(node)
        if now is not None and member is not None and edition < now.edition and member.incarnation in now.incarnations:
            self._send(address, now)

    def _traffic(self) -> dict[str, dict[str, int]]:
        """The bytes since the last call, by direction and kind."""
        traffic = {direction: dict(counts) for direction, counts in self._bytes.items()}
        for counts in self._bytes.values():
            counts.clear()
        return traffic

    def _warn_of_suspects(self, round: int, verdict: Verdict) -> None:
        if verdict.suspects:
            suspects, dropped = nodes_in_words(verdict.suspects), len(verdict.dropped)
            left_out = f"{dropped} equation{' is' if dropped == 1 else 's are'} left out"
            self._observer.warning(f"round {round}: wrong symbols of {suspects}; {left_out}")
        elif verdict.contradiction:
            self._observer.warning(f"round {round}: somebody sent wrong symbols, and too little came to tell who")

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
            self._reject(WireError(f"{header.kind} of node {header.node} under a key that is not its own"))
            if isinstance(header, wire.Join):
                self._send(address, wire.Refused(reason=f"the key is not that of node {header.node}"))
            return
        if isinstance(header, wire.Join):
            self._take_join(address, header)
            return
        node = self._nodes_by_address.get(address)
        if node is None or not self._control.is_from(node):
            if not isinstance(header, wire.Alive):
                self._num_rejected += 1
                log.info("a %s of somebody who has not joined, or whom a PS before this one knew", header.kind)
            self._send(address, wire.Rejoin())
            return
        now = monotonic()
        if (claim := self._liveness.speaks(node, now)) is not None:
            self._events.put_nowait(claim)  # which the protocol refuses, since this node is alive
        if isinstance(header, wire.Alive):
            self._liveness.tells(node, now, busy=header.busy, progress=header.progress)
            self._send(address, wire.Alive())
            self._introduce_again(node, address, header.edition)
        elif header.node != node:
            self._reject(WireError(f"{header.kind} of node {header.node} from node {node}"))
        elif isinstance(header, wire.Failed):
            self._events.put_nowait(events.NodeGone(node, f"it failed: {header.reason}"))
        elif isinstance(header, wire.TrainingFailed):
            self._liveness.ends_work(node)
            self._events.put_nowait(events.TrainingFailed(node, header.round, header.reason))
        elif isinstance(header, wire.Loaded):
            self._events.put_nowait(events.NodeLoaded(node))
        elif isinstance(header, wire.Connected):
            self._events.put_nowait(events.NodeConnected(node, header.edition))
        elif len(header.heard) != self._config.clients:
            self._reject(WireError(f"a report about {len(header.heard)} nodes"))
        else:
            self._liveness.ends_work(node)
            self._bytes["peers"]["message"] += header.bytes_from_peers
            self._events.put_nowait(events.ReportArrived(header))

    def _take_join(self, address: bytes, header: wire.Join) -> None:
        """Somebody asks to be a node; if there is one, that must show that it lives, or else gives way."""
        joined = events.NodeJoined(header.node, header.incarnation, address, (header.host, header.port))
        member = self._protocol.members.get(header.node)
        if self._nodes_by_address.get(address, header.node) != header.node:
            self._reject(WireError(f"node {self._nodes_by_address[address]} asks to be node {header.node}, too"))
        elif member is None or member.incarnation == header.incarnation:
            self._events.put_nowait(joined)
        elif self._liveness.claims(joined, monotonic()):
            self._send(member.address, wire.Ping())

    def _take_subscription(self, frames: list[Buffer]) -> None:
        """Subscriptions to the downlink: a node's own topic confirms that it hears θ."""
        try:
            begins, _, ready = wire.decode_subscription(frames, wire.TOPIC_DOWNLINK)
        except WireError as error:
            self._reject(error)
            return
        if begins and ready and ready[0].isdigit() and self._downlink.is_from(int(ready[0])):
            self._events.put_nowait(events.DownlinkHeard(int(ready[0]), ready[1]))

    def _take_transmission(self, frames: list[Buffer]) -> None:
        try:
            reception = self._radio.receive(frames)
            header = reception.header
            member = self._protocol.members.get(header.sender)
            if member is None or member.incarnation != header.incarnation:
                raise WireError(f"a transmission of another life of node {header.sender}")
        except WireError as error:
            self._reject(error)
            return
        kind = "message" if header.slot == 1 else "codeword"
        self._bytes["up"][kind] += sum(map(len, frames))
        place = (header.sender, header.round, header.attempt, header.slot)
        self._events.put_nowait(events.SlotOver(*place, reception.outcome, header.messages, reception.payload))

    async def _watch_deadlines(self) -> None:
        """Tell the protocol who is silent or stuck for too long, and when nothing comes any more."""
        config, interval = self._config, min(WATCH_SECONDS, self._config.slot_patience / 4)
        before = monotonic()
        while True:
            await asyncio.sleep(interval)
            now = monotonic()
            if now - before > interval + SUSPENDED_SECONDS:
                self._liveness.excuse(now)
                self._last_event = now
            before = now
            for node, reason in self._liveness.gone(now):
                self._events.put_nowait(events.NodeGone(node, reason))
            for claim in self._liveness.won_claims(now):
                self._events.put_nowait(claim)
            if any(self._liveness.is_busy(node) for node in self._protocol.awaited):
                self._last_event = now
            joining = self._protocol.state is State.JOINING
            late = self._protocol.awaited and now - self._last_event > config.slot_patience
            if late or (joining and now - self._started > config.join_patience):
                self._last_event = self._started = now
                self._events.put_nowait(events.Expired(self._protocol.place))

    def _send(self, address: bytes, header: wire.Header, *frames: bytes) -> None:
        encoded = wire.encode(header)
        self._bytes["down"]["control"] += len(encoded) + sum(map(len, frames))
        self._control.send(address, encoded, *frames)

    def _publish(self, kind: str, header: wire.Header, *frames: memoryview, topic: bytes = wire.TOPIC_DOWNLINK) -> None:
        encoded = wire.encode(header)
        size = len(topic) + len(encoded) + sum(frame.nbytes for frame in frames)
        self._bytes["down"][kind] += size * (len(self._protocol.members) if topic == wire.TOPIC_DOWNLINK else 1)
        self._downlink.send(topic, encoded, *frames)

    def _reject(self, error: WireError) -> None:
        self._num_rejected += 1
        log.warning("rejected a frame: %s", error)
