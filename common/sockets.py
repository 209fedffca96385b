"""How every ZeroMQ socket of dncfl is opened, and how endpoints are read."""

import os
from urllib.parse import urlsplit

import zmq
import zmq.asyncio

from dncfl.common.errors import NetworkError

LINGER_MS = 1000
"""How long a closing control socket may take to hand over its last words; what others still hold is of no use any more."""

RECONNECT_MS = 20
HANDSHAKE_MS = 10_000
MAX_CONTROL_FRAME = 2**20
"""Bytes of a control frame: the largest is a configuration with a value for each of 255 × 256 links."""


def open_socket(context: zmq.asyncio.Context, kind: int) -> zmq.asyncio.Socket:
    """A socket that never drops silently. It takes control frames; `expect_frames_of` lets it take larger ones.

    The high-water marks are off: a publisher never outruns its readers by more than one attempt, since the PS starts
    nothing new before every frame of the last is in.
    """
    socket = context.socket(kind)
    socket.linger = LINGER_MS if kind in (zmq.ROUTER, zmq.DEALER) else 0
    socket.set_hwm(0)
    socket.reconnect_ivl = RECONNECT_MS
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    expect_frames_of(socket, MAX_CONTROL_FRAME)
    return socket


def expect_frames_of(socket: zmq.asyncio.Socket, size: int) -> None:
    """Let connections that are made from now on carry frames of up to `size` bytes; larger ones end the connection."""
    socket.setsockopt(zmq.MAXMSGSIZE, max(size, MAX_CONTROL_FRAME))


def connect(socket: zmq.asyncio.Socket, host: str, port: int) -> None:
    """Connect to host:port. Raises NetworkError when that is no address; one that does not answer is tried for ever."""
    try:
        socket.connect(f"tcp://{host}:{port}")
    except zmq.ZMQError as error:
        raise NetworkError(f"cannot connect to {host}:{port}: {os.strerror(error.errno or 0)}") from error


def bind(socket: zmq.asyncio.Socket, host: str, port: int | None) -> int:
    """Bind to a port of a local address, a free one unless given; returns the port. Raises NetworkError.

    The system picks a free port while binding, so that nobody can take it in between.
    """
    try:
        socket.bind(f"tcp://{host}:{'*' if port is None else port}")
    except zmq.ZMQError as error:
        raise NetworkError(
            f"cannot listen at {host}:{'*' if port is None else port}: {os.strerror(error.errno or 0)}"
        ) from error
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return int(endpoint.rstrip(b"\0").rpartition(b":")[2])


def parse_address(text: str) -> tuple[str, int]:
    """The host and port in `host:port` or `tcp://host:port`. Raises NetworkError for anything else."""
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        if parts.scheme == "tcp" and parts.hostname and parts.port is not None and not parts.path:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise NetworkError(f"{text!r} is no address: must be host:port, as in 192.0.2.1:5555")
