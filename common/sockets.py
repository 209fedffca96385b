"""ZeroMQ sockets as dncfl uses them: opened one way, and read by a callback.

Each message is handed to a callback in the event loop as soon as it is there. A task that awaits each message, as in
`zmq.asyncio`, costs ten times as much per message, which is most of a small round.
"""

import asyncio
import logging
import os
import socket as system_sockets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import zmq

from dncfl.common.errors import AccessDenied, NetworkError
from dncfl.common.greeting import mechanism_at
from dncfl.common.handshakes import EVENTS, Handshakes
from dncfl.common.running import run_beside
from dncfl.common.security import Context, RawSocket, Security

if TYPE_CHECKING:
    from dncfl.common.payload import Buffer  # imports compiled functions, which a command line that asks for help does without

log = logging.getLogger(__name__)

LINGER_MS = 1000
"""How long a closing socket may take to hand over its last words.

Not 0 for a publisher, whose last words are of no use, either: ZeroMQ 4.3.5 aborts when a connection breaks in the middle of
a message of several frames while its socket is being closed without delay (libzmq issue 3442).
"""

RECONNECT_MS = 20
HEARTBEAT_MS, SILENCE_MS = 5_000, 15_000
"""A connection whose other end does not answer for so long is given up, with what is queued for it, and made anew."""

HANDSHAKE_MS = 10_000
MAX_CONTROL_FRAME = 2**20
"""Bytes of a control frame: the largest is a configuration with a value for each of 255 × 256 links."""

CURVE_BYTES = 33
"""Bytes that encryption adds to a frame."""

COPIED_BELOW = 2**20
"""Bytes of a frame that are sooner copied than lent: a thread of pyzmq's takes back what was lent."""

QUEUED_BYTES = 2**26
"""What may wait for one reader that does not read, unless a few messages are more."""

MAX_FRAMES = 8
"""Frames of a message that are looked at: no message of dncfl has as many, so that a longer one is refused unread."""

BACKLOG = 255
"""Connections that may wait until a reserved port is listened at."""

BURST = 64
"""Messages that are handed over before the event loop looks at anything else."""


_NOBLOCK, _SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)  # as plain numbers, which pyzmq need not convert each time


class Socket:
    """A socket that never waits when sending; it belongs to the thread of one event loop.

    A publisher outruns its readers by one attempt at most, since the PS starts nothing new before every frame of the last
    is in or given up; `queue_at_most` bounds what waits for a reader that is given up. Nothing is dropped silently: who
    waits for a transmission finds that it is lost.
    """

    def __init__(self, context: Context, kind: int, security: Security) -> None:
        """It takes control frames; `expect_frames_of` lets it take larger ones."""
        self._security = security
        self._socket = context.socket(kind)
        self._socket.linger = 0 if kind == zmq.SUB else LINGER_MS  # a SUB sends subscriptions only, for ever where nobody is
        self._socket.set_hwm(0)
        self._socket.copy_threshold = COPIED_BELOW
        self._socket.reconnect_ivl = RECONNECT_MS
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
        self.expect_frames_of(MAX_CONTROL_FRAME)
        self._listens = False
        self._sender: str | None = None
        self._is_control = kind == zmq.DEALER
        self._handshakes = Handshakes(uses_keys=security.uses_keys)
        self._monitor = _monitor(context, self._socket) if kind in (zmq.DEALER, zmq.SUB) else None
        self._to_ask: asyncio.Queue[str] = asyncio.Queue()
        self._look: Callable[[], object] = lambda: None

    def set_option(self, option: int, value: int | bytes) -> None:
        """Set an option of ZeroMQ's."""
        self._socket.setsockopt(option, value)

    def expect_frames_of(self, size: int) -> None:
        """Let connections that are made from now on carry frames of up to `size` bytes; larger ones end the connection."""
        self._socket.setsockopt(zmq.MAXMSGSIZE, max(size, MAX_CONTROL_FRAME) + CURVE_BYTES)

    def connect(self, host: str, port: int, peer: int | str) -> None:
        """Connect to host:port, where node `peer` or the PS must be; one that does not answer is tried for ever.

        Raises NetworkError when that is no address, ConfigError when the key of `peer` is not known.
        """
        self._security.before_connecting(self._socket, peer)
        try:
            self._socket.connect(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            raise NetworkError(f"cannot connect to {host}:{port}: {os.strerror(error.errno or 0)}") from error

    def disconnect(self, host: str, port: int) -> None:
        """Take back `connect`; nothing happens where there is no such connection."""
        with suppress(zmq.ZMQError):
            self._socket.disconnect(f"tcp://{host}:{port}")

    def queue_at_most(self, messages: int) -> None:
        """Let each reader miss what comes while so many messages wait for it. It must be said before there are any.

        ZeroMQ would change it for readers that are connected, too, but crashes where one is of an old protocol and leaves.
        """
        assert not self._listens
        self._socket.sndhwm = messages

    def bind(self, host: str, port: int | None) -> int:
        """Let others in at a port of a local address, a free one unless given; returns the port. Raises as `reserve` does."""
        reserved = self.reserve(host, port)
        number: int = reserved.getsockname()[1]
        self.listen(reserved)
        return number

    def reserve(self, host: str, port: int | None) -> system_sockets.socket:
        """A port of a local address, a free one unless given, where `listen` lets others in later; the caller closes it.

        The system picks a free port while it is taken, so that nobody can take it in between, and looks names up, which
        ZeroMQ would not do. Raises NetworkError when the address cannot be used, ConfigError when it would let strangers in.
        """
        self._security.before_binding(self._socket, host)
        try:
            reserved = system_sockets.create_server((host, port or 0), backlog=BACKLOG)
        except OSError as error:
            reason = str(error.strerror or error).partition(" (while")[0]  # Python adds the address, which is told already
            raise NetworkError(f"cannot listen at {host}:{'*' if port is None else port}: {reason}") from error
        reserved.setblocking(False)
        return reserved

    def listen(self, reserved: system_sockets.socket) -> None:
        """Let others in at a reserved port, which belongs to this socket from now on."""
        self._listens = True
        host, port = reserved.getsockname()
        self._socket.setsockopt(zmq.USE_FD, reserved.detach())
        self._socket.bind(f"tcp://{host}:{port}")

    def subscribe(self, *topics: bytes) -> None:
        """Subscribe to topics, in this order."""
        for topic in topics:
            self._socket.subscribe(topic)

    def send(self, *frames: Any) -> None:
        """Send frames; large ones are not copied, and must stay as they are until they have left."""
        for frame in frames[:-1]:
            self._socket.send(frame, _NOBLOCK | _SNDMORE, copy=False)
        self._socket.send(frames[-1], _NOBLOCK, copy=False)
        self._look()

    def is_from(self, node: int) -> bool:
        """Whether the message that is being read came under this node's key; where keys are not used, it may be so."""
        return not self._security.uses_keys or self._sender == str(node)

    async def read(self, take: "Callable[[list[Buffer]], None]") -> None:
        """Hand each message's frames to `take`, until it raises an exception, which is raised here, or this is cancelled.

        The first two frames, which are short in all messages of dncfl, are bytes; the others are views, not copies.
        Raises AccessDenied when a DEALER and its other side do not accept each other's keys; a SUB, which has many other
        sides, only warns.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def drain(take_next: Callable[[], None]) -> None:
            try:
                for _ in range(BURST):
                    if ended.done():
                        return
                    take_next()
                loop.call_soon(drain, take_next)
            except zmq.Again:
                pass
            except Exception as error:
                if not ended.done():
                    ended.set_exception(error)

        def take_message() -> None:
            take(self._receive())

        # ZeroMQ's descriptor tells of a change, not of a state: after sending, too, one must look.
        self._look = lambda: loop.call_soon(drain, take_message)
        sources = {self._socket: take_message}
        if self._monitor is not None:
            sources[self._monitor] = self._take_handshake
        for socket, take_next in sources.items():
            loop.add_reader(socket.fileno(), drain, take_next)
            loop.call_soon(drain, take_next)
        try:
            await run_beside(ended, self._ask_who_hangs_up())
        finally:
            self._look = lambda: None
            for socket in sources:
                loop.remove_reader(socket.fileno())
            ended.cancel()

    def _receive(self) -> "list[Buffer]":
        """The frames of the next message. Raises zmq.Again when there is none."""
        frame = self._socket.recv(_NOBLOCK, copy=False)
        frames: list[Buffer] = [frame.bytes]
        while frame.more:
            frame = self._socket.recv(0, copy=False)
            if len(frames) < MAX_FRAMES:
                frames.append(frame.bytes if len(frames) < 2 else frame.buffer)
        if self._listens:
            self._sender = self._security.sender(frame)
        return frames

    def _take_handshake(self) -> None:
        """Look at what became of one handshake. Raises zmq.Again when there is none."""
        assert self._monitor is not None
        frames = self._monitor.recv_multipart(_NOBLOCK)
        with self._refusals():
            if place := self._handshakes.take(frames, monotonic()):
                self._to_ask.put_nowait(place)

    async def _ask_who_hangs_up(self) -> None:
        """Find out, one after the other, why the other sides at some places keep hanging up."""
        while True:
            place = await self._to_ask.get()
            mechanism = await mechanism_at(*parse_address(place))
            with self._refusals():
                self._handshakes.judge(place, mechanism)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """A refusal ends a DEALER's reading, and is told by a SUB."""
        try:
            yield
        except AccessDenied as error:
            if self._is_control:
                raise
            log.warning("%s", error)


def _monitor(context: Context, socket: RawSocket) -> RawSocket:
    """A socket that tells of another one's handshakes. It never fills up, or ZeroMQ would wait until it is read."""
    endpoint = f"inproc://handshakes-{socket.fileno()}"
    socket.monitor(endpoint, EVENTS)
    monitor = context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.set_hwm(0)
    monitor.connect(endpoint)
    return monitor


def queue_for(at_once: int, size: int) -> int:
    """How many messages of `size` bytes may wait for a reader: enough for those sent at once, and more where they are small.

    Enough is more than at_once: of h that may wait, up to (h - 1)/2 may be read already without the sender knowing.
    """
    return max(at_once, 2 * (at_once - 1), QUEUED_BYTES // size)


def parse_address(text: str) -> tuple[str, int]:
    """The host and port in `host:port` or `tcp://host:port`. Raises NetworkError for anything else."""
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        if parts.scheme == "tcp" and parts.hostname and parts.port is not None and not parts.path:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise NetworkError(f"{text!r} is no address: must be host:port, as in 192.0.2.1:5555, with a port of at most 65535")
