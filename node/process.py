"""The node process: the one owner of its sockets, tasks and clocks. What to do is decided in `dncfl.node.protocol`.

join ─▶ welcome ─▶ load data ─▶ hear the PS ─▶ hear the peers ─▶ all hear me ─▶ rounds ─▶ stop
"""

import asyncio
import logging
import socket as system_sockets
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import pydantic
import zmq

from dncfl.common import wire
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.config import Config
from dncfl.common.errors import ConfigError, DncflError, NetworkError, RunStopped, WireError
from dncfl.common.message import SIDE_SYMBOLS
from dncfl.common.payload import Buffer, Payload
from dncfl.common.radio import Radio
from dncfl.common.running import run_beside
from dncfl.common.scheme import channel, network_code
from dncfl.common.sockets import Socket
from dncfl.common.tasks.training import TrainingStopped
from dncfl.common.trace import letters
from dncfl.node import protocol
from dncfl.node.protocol import NodeProtocol
from dncfl.node.settings import NodeSettings
from dncfl.node.trainer import MakeTrainer, Trainer, local_trainer

log = logging.getLogger(__name__)

WORTH_A_THREAD = 2**22
"""Products of symbols that take longer than a few milliseconds in the event loop."""

T = TypeVar("T")
H = TypeVar("H", wire.Welcome, wire.Peers, wire.Stop)


class NodeProcess:
    """One node, from joining to the end of the run."""

    def __init__(self, settings: NodeSettings, make_trainer: MakeTrainer = local_trainer) -> None:
        """`make_trainer` runs in a thread, once the run's configuration is known."""
        self._settings = settings
        self._make_trainer = make_trainer
        self._node = settings.node
        self._last_heard = monotonic()
        self._control_headers: asyncio.Queue[tuple[wire.FromServer, list[Buffer]]] = asyncio.Queue()
        self._events: asyncio.Queue[protocol.Event] = asyncio.Queue()
        self._bytes_from_peers: Counter[int] = Counter()
        self._leaving = threading.Event()
        self._busy = False

    async def run(self) -> None:
        """Take part until the PS says that the run is over.

        Raises NetworkError when the PS does not answer or refuses, AccessDenied when it and this node do not accept each
        other's keys, ConfigError when this node would listen to strangers, RunStopped when it ends the run early, and whatever
        training raises, after telling the PS.
        """
        security = self._settings.security
        with security.context() as context:
            self._control, self._downlink = Socket(context, zmq.DEALER, security), Socket(context, zmq.SUB, security)
            self._uplink, self._peers = Socket(context, zmq.XPUB, security), Socket(context, zmq.SUB, security)
            self._control.set_option(zmq.ROUTING_ID, f"{self._node}-{uuid4().hex}".encode())
            self._control.connect(self._settings.server_host, self._settings.server_port, wire.SERVER_NAME)
            with ThreadPoolExecutor(1, thread_name_prefix="train") as self._worker:
                try:
                    await self._tell_failures()
                finally:
                    self._leaving.set()

    async def _tell_failures(self) -> None:
        """Take part, and tell the PS of whatever ends it on this side."""
        try:
            await run_beside(self._take_part(), self._control.read(self._take_control))
        except (RunStopped, NetworkError):
            raise
        except DncflError as error:
            self._send(wire.Failed(node=self._node, reason=str(error)[:7000]))
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:2000] + f"\n{traceback.format_exc()[-4000:]}"
            self._send(wire.Failed(node=self._node, reason=reason))
            raise
        except asyncio.CancelledError:
            self._send(wire.Failed(node=self._node, reason="it was stopped by a signal"))
            raise

    async def _take_part(self) -> None:
        host = self._settings.host or _address_towards(self._settings.server_host)
        port = self._uplink.bind(host, self._settings.port)
        self._send(wire.Join(node=self._node, host=host, port=port))
        try:
            async with asyncio.timeout(self._settings.patience):
                welcome, config = await self._welcome()
        except TimeoutError:
            where = f"{self._settings.server_host}:{self._settings.server_port}"
            raise NetworkError(f"the PS at {where} does not answer within {self._settings.patience:g} s") from None
        await run_beside(self._serve(welcome, config), self._keep_alive(config.patience))

    async def _welcome(self) -> tuple[wire.Welcome, Config]:
        """Wait until the PS admits this node, and read the run's configuration with what differs on this machine."""
        header, frames = await self._expect(wire.Welcome)
        try:
            config = Config.model_validate_json(bytes(frames[0]) if frames else b"")
        except pydantic.ValidationError as error:
            raise WireError(f"the PS sent no valid configuration: {error.errors()[0]['msg']}") from None
        if config.model not in ("paper-cnn", self._settings.model):
            raise ConfigError(
                f"the run trains the model {config.model}; start this node with --model {config.model} to allow its import"
            )
        here = {name: getattr(self._settings, name) for name in ("data_root", "device", "trace")}
        return header, config.model_copy(update={name: value for name, value in here.items() if value is not None})

    async def _serve(self, welcome: wire.Welcome, config: Config) -> None:
        """Load the data, connect, and follow the rounds to the end."""
        code = network_code(config)
        num_symbols = SIDE_SYMBOLS + welcome.num_parameters
        radio = Radio(code, channel(config), self._node, num_symbols)
        trainer = await self._in_thread(self._make_trainer, config, self._node)
        self._hear_server(welcome)
        self._peers.expect_frames_of(2 * num_symbols)
        node_protocol = NodeProtocol(
            self._node, config.clients, relay_slots=code.all_relay_slots, waits_to_be_asked=config.early_stop
        )
        await run_beside(
            self._meet_and_stay(config.clients, listens=code.relay_slots > 0),
            self._downlink.read(partial(self._take_downlink, welcome.num_parameters)),
            self._peers.read(partial(self._take_transmission, radio)),
            self._follow(node_protocol, code, radio, trainer),
        )

    def _hear_server(self, welcome: wire.Welcome) -> None:
        self._downlink.expect_frames_of(4 * welcome.num_parameters)
        self._downlink.connect(self._settings.server_host, welcome.downlink_port, wire.SERVER_NAME)
        self._downlink.subscribe(wire.TOPIC_DOWNLINK, wire.ready_topic(self._node))

    async def _meet_and_stay(self, num_clients: int, *, listens: bool) -> None:
        """Meet the peers, wait until all who must hear this node do, tell the PS, and wait for the end."""
        introduction, _ = await self._expect(wire.Peers)
        if not len(introduction.hosts) == len(introduction.ports) == num_clients:
            raise WireError(f"the PS introduced {len(introduction.hosts)} nodes: must be {num_clients}")
        listeners = {wire.ready_topic(wire.SERVER_NAME)}
        if listens:
            peers = [m for m in range(num_clients) if m != self._node]
            for m in peers:
                self._peers.connect(introduction.hosts[m], introduction.ports[m], m)
            self._peers.subscribe(wire.TOPIC_MESSAGE, wire.ready_topic(self._node))
            listeners |= {wire.ready_topic(m) for m in peers}

        def take_subscription(frames: list[Buffer]) -> None:
            if (topic := bytes(frames[0][1:])) in listeners:
                listeners.discard(topic)
                if not listeners:
                    self._send(wire.Connected(node=self._node))

        await run_beside(self._expect(wire.Stop), self._uplink.read(take_subscription))

    async def _follow(self, node_protocol: NodeProtocol, code: DiversityNetworkCode, radio: Radio, trainer: Trainer) -> None:
        """The rounds: each event leads to actions, one after the other."""
        while True:
            event = await self._events.get()
            for action in node_protocol.handle(event):
                match action:
                    case protocol.Train(round, theta):
                        update = await self._in_thread(trainer.update, theta, round, self._stop_when_leaving)
                        self._events.put_nowait(protocol.Trained(update))
                    case protocol.Transmit(round, attempt, message):
                        self._publish(radio.frames(round, attempt, 1, [self._node], message))
                    case protocol.Report():
                        self._send(self._report(action))
                    case protocol.Relay(round, attempt, slots, messages):
                        codewords = await self._combine(code, messages, slots)
                        for slot, codeword in zip(slots, codewords, strict=True):
                            self._publish(radio.frames(round, attempt, slot, messages, codeword))

    async def _combine(
        self, code: DiversityNetworkCode, messages: Mapping[int, Payload], slots: Sequence[int]
    ) -> list[Payload]:
        """The codewords of some relay slots; few symbols are sooner combined than a thread is woken."""
        if len(slots) * sum(map(len, messages.values())) < WORTH_A_THREAD:
            return code.codewords(self._node, messages, slots)
        return await self._in_thread(code.codewords, self._node, messages, slots)

    def _report(self, action: protocol.Report) -> wire.Report:
        update = action.update
        return wire.Report(
            node=self._node,
            round=action.round,
            attempt=action.attempt,
            heard=letters(action.heard),
            train_seconds=update.train_seconds,
            encode_seconds=update.encode_seconds,
            train_loss=update.train_loss,
            num_clipped=update.num_clipped,
            bytes_from_peers=self._bytes_from_peers.pop(action.round, 0),
        )

    def _take_control(self, frames: list[Buffer]) -> None:
        try:
            message = wire.decode(frames[0], wire.FROM_SERVER)
        except WireError as error:
            self._reject(error)
            return
        self._last_heard = monotonic()
        if isinstance(message, wire.Refused):
            raise NetworkError(f"the PS refused node {self._node}: {message.reason}")
        if isinstance(message, wire.Stop) and not message.completed:
            raise RunStopped(f"the PS ended the run: {message.reason}")
        if not isinstance(message, wire.Alive):
            self._control_headers.put_nowait((message, frames[1:]))

    async def _expect(self, kind: type[H]) -> tuple[H, list[Buffer]]:
        """The next message of the PS, which must be of this kind, with the frames that follow its header."""
        header, frames = await self._control_headers.get()
        if not isinstance(header, kind):
            raise WireError(f"the PS sent {header.kind} where {kind.__name__.lower()} is due")
        return header, frames

    async def _keep_alive(self, patience: float) -> None:
        """Tell the PS that this node is there, and raise NetworkError when the PS is silent for too long."""
        while True:
            self._send(wire.Alive(busy=self._busy))
            await asyncio.sleep(patience / 10)
            if monotonic() - self._last_heard > patience:
                raise NetworkError(f"the PS has been silent for {patience:g} s")

    def _take_downlink(self, num_parameters: int, frames: list[Buffer]) -> None:
        try:
            if len(frames) < 2:
                raise WireError("a topic without a header")
            _, header, *payload = frames
            match wire.decode(header, wire.DOWNLINK):
                case wire.Model(round=round):
                    if len(payload) != 1 or len(payload[0]) != 4 * num_parameters:
                        raise WireError(f"a model that is not one frame of {4 * num_parameters} bytes")
                    floats = np.frombuffer(payload[0], dtype="<f4").astype(np.float32, copy=False)
                    theta = np.require(floats, requirements="A")  # where it lies, unless that is at an odd address
                    self._events.put_nowait(protocol.ModelArrived(round, theta))
                case wire.Repeat(round=round, attempt=attempt):
                    self._events.put_nowait(protocol.RepeatAsked(round, attempt))
                case wire.RelaySlot(round=round, attempt=attempt, slot=slot):
                    self._events.put_nowait(protocol.RelayAsked(round, attempt, slot))
        except WireError as error:
            self._reject(error)

    def _take_transmission(self, radio: Radio, frames: list[Buffer]) -> None:
        try:
            reception = radio.receive(frames)
        except WireError as error:
            self._reject(error)
            return
        header = reception.header
        self._bytes_from_peers[header.round] += sum(map(len, frames))
        self._events.put_nowait(
            protocol.PeerSlotOver(header.sender, header.round, header.attempt, reception.outcome, reception.payload)
        )

    def _send(self, header: wire.Header) -> None:
        self._control.send(wire.encode(header))

    def _publish(self, frames: list[Any]) -> None:
        self._uplink.send(*frames)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Let a function that blocks run in the worker thread; the PS is told that this node is busy."""
        self._busy = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)
        finally:
            self._busy = False

    def _stop_when_leaving(self) -> None:
        if self._leaving.is_set():
            raise TrainingStopped

    def _reject(self, error: WireError) -> None:
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
