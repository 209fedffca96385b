"""One life of a node: the one owner of its sockets, tasks and clocks, from joining to leaving. For its rounds see `rounds`.

join ─▶ welcome ─▶ load data ─▶ hear the PS ─▶ loaded ─▶ hear the peers ─▶ all hear me ─▶ rounds ─▶ stop
"""

import asyncio
import logging
import socket as system_sockets
from functools import partial
from itertools import count
from secrets import randbelow
from time import monotonic

import numpy as np
import pydantic
import zmq

from dncfl.common import wire
from dncfl.common.channel import Outcome
from dncfl.common.config import Config
from dncfl.common.errors import ConfigError, NetworkError, RunStopped, WireError
from dncfl.common.limits import ensure_files, files_of_node
from dncfl.common.message import is_intact
from dncfl.common.payload import BYTES_OF_ESCAPE, Buffer
from dncfl.common.radio import Radio
from dncfl.common.running import run_beside
from dncfl.common.scheme import channel, message_format, network_code
from dncfl.common.sockets import Socket, queue_for
from dncfl.node import protocol
from dncfl.node.faults import NodeFaults
from dncfl.node.neighbours import Neighbours
from dncfl.node.protocol import NodeProtocol
from dncfl.node.rounds import Rounds, reason_of
from dncfl.node.settings import NodeSettings
from dncfl.node.trainer import MakeTrainer
from dncfl.node.worker import Worker

log = logging.getLogger(__name__)

JOIN_AGAIN_SECONDS = 2.0
"""How often a node asks to join: a PS that was restarted has not heard it."""


class Forgotten(Exception):
    """The PS does not know this life of the node any more."""


class Life:
    """One incarnation of a node, from joining to the end of the run."""

    def __init__(self, settings: NodeSettings, make_trainer: MakeTrainer) -> None:
        """`make_trainer` runs in a thread, once the run's configuration is known."""
        self._settings = settings
        self._make_trainer = make_trainer
        self._node = settings.node
        self._server = (settings.server_host, settings.server_port)
        self._incarnation = 1 + randbelow(2**62)
        self._last_heard = monotonic()
        self._control_headers: asyncio.Queue[tuple[wire.FromServer, list[Buffer]]] = asyncio.Queue()
        self._events: asyncio.Queue[protocol.Event] = asyncio.Queue()
        self._worker = Worker()
        self._neighbours = Neighbours(self._node)
        self._num_rejected = 0
        self._faults = NodeFaults(settings, self._cut)

    async def run(self) -> None:
        """Take part until the PS says that the run is over.

        Raises NetworkError when the PS does not answer or refuses, RunStopped when it ends the run early, Forgotten when the
        node must join anew, and whatever ends this node, after telling the PS.
        """
        security = self._settings.security
        with security.context() as context:
            self._control, self._downlink = Socket(context, zmq.DEALER, security), Socket(context, zmq.SUB, security)
            self._uplink, self._peers = Socket(context, zmq.XPUB, security), Socket(context, zmq.SUB, security)
            self._control.set_option(zmq.ROUTING_ID, f"{self._node}.{self._incarnation}".encode())
            self._control.connect(*self._server, wire.SERVER_NAME)
            with self._worker:
                await self._tell_failures()

    async def _tell_failures(self) -> None:
        """Take part, and tell the PS of whatever ends it on this side."""
        try:
            await run_beside(self._take_part(), self._control.read(self._take_control))
        except (RunStopped, NetworkError, Forgotten):
            raise
        except Exception as error:
            self._send(wire.Failed(node=self._node, reason=reason_of(error)))
            raise
        except asyncio.CancelledError:
            self._send(wire.Failed(node=self._node, reason="it was stopped by a signal"))
            raise

    async def _take_part(self) -> None:
        await self._faults.meet("before-join", 0)
        host = self._settings.host or _address_towards(self._settings.server_host)
        with self._uplink.reserve(host, self._settings.port) as reserved:
            log.info("node %d asks the PS at %s:%d to join", self._node, *self._server)
            join = wire.Join(node=self._node, incarnation=self._incarnation, host=host, port=reserved.getsockname()[1])
            try:
                async with asyncio.timeout(self._settings.patience):
                    welcome, config, tensor_sizes = await run_beside(self._welcome(), self._ask_to_join(join))
            except TimeoutError:
                host, port = self._server
                raise NetworkError(f"the PS at {host}:{port} does not answer within {self._settings.patience:g} s") from None
            run = f"{config.rounds} rounds of {config.method} on {config.dataset}, {config.clients} nodes"
            log.info("node %d takes part in a run of %s", self._node, run)
            await run_beside(self._serve(welcome, config, tensor_sizes, reserved), self._keep_alive(config))

    async def _ask_to_join(self, join: wire.Join) -> None:
        for times_asked in count():
            if times_asked == 1:
                log.info("no answer within %g s; asking again for %g s in all", JOIN_AGAIN_SECONDS, self._settings.patience)
            self._send(join)
            await asyncio.sleep(JOIN_AGAIN_SECONDS)

    async def _welcome(self) -> tuple[wire.Welcome, Config, tuple[int, ...]]:
        """Wait until the PS admits this node; read the configuration, with what differs here, and its model's tensor sizes."""
        header, frames = await self._control_headers.get()
        if not isinstance(header, wire.Welcome):
            raise WireError(f"the PS sent {header.kind} where welcome is due")
        if len(frames) != 2 or len(frames[1]) % 4:
            raise WireError(f"the PS sent a welcome with {len(frames)} frames: must be a configuration and whole words")
        try:
            config = Config.model_validate_json(bytes(frames[0]))
        except pydantic.ValidationError as error:
            raise WireError(f"the PS sent no valid configuration: {error.errors()[0]['msg']}") from None
        own_code = config.own_code
        if any(name != getattr(self._settings, what) for what, name in own_code.items()):
            options = " ".join(f"--{what} {name}" for what, name in own_code.items())
            raise ConfigError(f"the run uses code of its own; start this node with {options} to allow its import")
        here = {name: getattr(self._settings, name) for name in ("data_root", "device", "trace")}
        config = config.model_copy(update={name: value for name, value in here.items() if value is not None})
        return header, config, tuple(np.frombuffer(frames[1], dtype="<u4").tolist())

    async def _serve(
        self, welcome: wire.Welcome, config: Config, tensor_sizes: tuple[int, ...], reserved: system_sockets.socket
    ) -> None:
        """Load the data, connect, and follow the rounds to the end."""
        ensure_files(files_of_node(config.clients), f"a node among {config.clients}")
        trainer = await self._worker.run(self._make_trainer, config, self._node)
        if trainer.tensor_sizes != tensor_sizes:
            here, there = trainer.tensor_sizes, tensor_sizes
            raise ConfigError(
                f"model = {config.model}: has {sum(here):,} values in {len(here)} tensors here, and {sum(there):,} in "
                f"{len(there)} of other sizes at the PS; all must have the same model"
            )
        messages = message_format(config, tensor_sizes)
        code = network_code(config, messages)
        radio = Radio(
            code,
            channel(config),
            self._node,
            messages,
            self._incarnation,
            last_round=config.rounds,
            last_attempt=config.max_attempts,
        )
        rounds = Rounds(self._node, code, radio, trainer, self._worker, self._faults, self._uplink, self._send)
        self._downlink.expect_frames_of(4 * messages.num_values)
        self._hear_server(welcome)
        self._peers.expect_frames_of(BYTES_OF_ESCAPE * messages.num_symbols)
        self._is_intact = partial(is_intact, form=messages)
        self._uplink.queue_at_most(queue_for(1 + code.relay_slots, code.most_symbols(messages)))
        self._uplink.listen(reserved)
        self._send(wire.Loaded(node=self._node))
        await self._faults.meet("after-join", 0)
        node_protocol = NodeProtocol(
            self._node, config.clients, relay_slots=code.all_relay_slots, waits_to_be_asked=config.early_stop
        )
        self._neighbours.listens = code.relay_slots > 0
        await run_beside(
            self._meet_and_stay(rounds),
            self._uplink.read(self._take_subscription),
            self._downlink.read(partial(self._take_downlink, messages.num_values)),
            self._peers.read(partial(self._take_transmission, radio, rounds)),
            rounds.follow(node_protocol, self._events),
        )

    def _hear_server(self, welcome: wire.Welcome) -> None:
        self._downlink.connect(self._settings.server_host, welcome.downlink_port, wire.SERVER_NAME)
        self._downlink.subscribe(wire.TOPIC_DOWNLINK, wire.ready_topic(self._node, self._incarnation))

    async def _meet_and_stay(self, rounds: Rounds) -> None:
        """Hear whoever the PS introduces, tell the PS when all of them hear this node, and wait for the end."""
        if self._neighbours.listens:
            self._peers.subscribe(wire.TOPIC_MESSAGE, wire.ready_topic(self._node, self._incarnation))
        while True:
            header, _ = await self._control_headers.get()
            if isinstance(header, wire.Stop):
                log.info(
                    "node %d leaves: %s; it has trained in %d rounds and rejected %d frames",
                    self._node,
                    header.reason,
                    rounds.num_trained,
                    self._num_rejected,
                )
                return
            if not isinstance(header, wire.Peers) or header.edition <= self._neighbours.edition:
                continue  # the PS says again what a broken connection may have lost
            gone, come = self._neighbours.introduce(header.edition, header.members)
            for endpoint in gone:
                self._peers.disconnect(*endpoint)
            for node, endpoint in come:
                self._peers.connect(*endpoint, node)
            self._confirm()

    def _cut(self, peer: int, seconds: float) -> None:
        """Hear nothing of a peer for a time; a fault asks for it."""
        if (endpoint := self._neighbours.endpoint(peer)) is None:
            return
        incarnation = self._neighbours.incarnation(peer)

        def mend() -> None:
            if self._neighbours.incarnation(peer) == incarnation and not self._worker.leaving:
                self._peers.connect(*endpoint, peer)

        self._peers.disconnect(*endpoint)
        asyncio.get_running_loop().call_later(seconds, mend)

    def _take_subscription(self, frames: list[Buffer]) -> None:
        try:
            begins, topic, ready = wire.decode_subscription(frames, wire.TOPIC_MESSAGE, wire.TOPIC_CODEWORD)
            if not begins:
                self._neighbours.subscription_ends(topic)
            elif ready:
                self._neighbours.subscription_begins(topic)
                self._confirm()
        except WireError as error:
            self._reject(error)

    def _confirm(self) -> None:
        """Tell the PS once all who must hear this node have subscribed."""
        if self._neighbours.all_hear():
            self._send(wire.Connected(node=self._node, edition=self._neighbours.edition))

    def _take_control(self, frames: list[Buffer]) -> None:
        try:
            message = wire.decode(frames[0], wire.FROM_SERVER)
            if len(frames) > 1 and not isinstance(message, wire.Welcome):
                raise WireError(f"{message.kind} with {len(frames) - 1} frames too many")
            if isinstance(message, wire.Peers):
                message.check()
        except WireError as error:
            self._reject(error)
            return
        self._last_heard = monotonic()
        if isinstance(message, wire.Refused):
            raise NetworkError(f"the PS refused node {self._node}: {message.reason}")
        if isinstance(message, wire.Rejoin):
            raise Forgotten
        if isinstance(message, wire.Stop) and not message.completed:
            raise RunStopped(f"the PS ended the run: {message.reason}")
        if isinstance(message, wire.Ping):
            self._send_alive()
        elif not isinstance(message, wire.Alive):
            self._control_headers.put_nowait((message, frames[1:]))

    async def _keep_alive(self, config: Config) -> None:
        """Tell the PS that this node is there, and raise NetworkError when the PS is silent for longer than the node waits."""
        while True:
            self._send_alive()
            await asyncio.sleep(min(config.patience / 10, config.slot_patience / 3, self._settings.patience / 10))
            if monotonic() - self._last_heard > self._settings.patience:
                raise NetworkError(f"the PS has been silent for {self._settings.patience:g} s")

    def _send_alive(self) -> None:
        self._send(wire.Alive(edition=self._neighbours.edition, busy=self._worker.busy, progress=self._worker.progress))

    def _take_downlink(self, num_parameters: int, frames: list[Buffer]) -> None:
        try:
            if len(frames) < 2:
                raise WireError("a topic without a header")
            _, header, *payload = frames
            message = wire.decode(header, wire.DOWNLINK)
            sizes = [4 * num_parameters] if isinstance(message, wire.Model) else []
            if [len(frame) for frame in payload] != sizes:
                raise WireError(f"{message.kind} with frames of {[len(frame) for frame in payload]} bytes: must be {sizes}")
            match message:
                case wire.Model(round=round, members=members):
                    floats = np.frombuffer(payload[0], dtype="<f4").astype(np.float32, copy=False)
                    theta = np.require(floats, requirements="A")  # where it lies, unless that is at an odd address
                    self._worker.newest_round = max(self._worker.newest_round, round)
                    self._events.put_nowait(protocol.ModelArrived(round, theta, frozenset(members)))
                case wire.Repeat(round=round, attempt=attempt, members=members):
                    self._events.put_nowait(protocol.RepeatAsked(round, attempt, frozenset(members)))
                case wire.StopWaiting(round=round, attempt=attempt, senders=senders, overdue=overdue):
                    self._events.put_nowait(protocol.WaitingEnds(round, attempt, frozenset(senders), overdue))
                case wire.RelaySlot(round=round, attempt=attempt, slot=slot):
                    self._events.put_nowait(protocol.RelayAsked(round, attempt, slot))
        except WireError as error:
            self._reject(error)

    def _take_transmission(self, radio: Radio, rounds: Rounds, frames: list[Buffer]) -> None:
        try:
            reception = radio.receive(frames)
            header = reception.header
            if self._neighbours.incarnation(header.sender) != header.incarnation:
                raise WireError(f"a transmission of another life of node {header.sender}")
        except WireError as error:
            self._reject(error)
            return
        rounds.count_bytes(header.round, header.attempt, sum(map(len, frames)))
        outcome, message = reception.outcome, reception.payload
        if message is not None and not self._is_intact(message, round=header.round, sender=header.sender):
            outcome, message = Outcome.LOST, None  # to relay it would make this node look like a liar
        self._events.put_nowait(protocol.PeerSlotOver(header.sender, header.round, header.attempt, outcome, message))

    def _send(self, header: wire.Header) -> None:
        self._control.send(wire.encode(header))

    def _reject(self, error: WireError) -> None:
        self._num_rejected += 1
        log.warning("node %d rejected a frame: %s", self._node, error)


def _address_towards(host: str) -> str:
    """The address of this machine that packets to `host` leave from. Raises NetworkError."""
    try:
        with system_sockets.socket(system_sockets.AF_INET, system_sockets.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # a datagram socket sends nothing when it connects
            address: str = probe.getsockname()[0]
            return address
    except OSError as error:
        raise NetworkError(f"the PS's host {host!r} cannot be reached: {error.strerror or error}") from None
