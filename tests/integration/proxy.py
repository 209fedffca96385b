"""A network that misbehaves on request: a TCP proxy in the event loop of its user."""

import asyncio
import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

LOOPBACK = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Direction = Literal["in", "out"]
"""in: from who connects to who listens; out: back."""

CHUNK = 2**16


@dataclass(eq=False)
class _Connection:
    """One connection through the proxy, and how many bytes may still pass in each direction before it is reset."""

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    left: dict[Direction, int] = field(default_factory=dict)

    def reset(self) -> None:
        """End both halves as a crash would: what is on its way is gone, and the other side hears of an error."""
        for writer in self.writers:
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def close(self) -> None:
        """End both halves once all is sent."""
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class Proxy:
    """Forwards connections to a target, with the faults that are asked for, and counts them; it owns all its tasks."""

    def __init__(self, host: str = LOOPBACK, port: int = 0, seed: int = 0) -> None:
        """The target may be set later, before the first connection."""
        self.target = (host, port)
        self.port = 0
        self.counts: Counter[str] = Counter()
        """connections; bytes that passed, and that were held up; chunks that were delayed; resets"""
        self._rng = random.Random(seed)
        self._latency: tuple[float, float] | None = None
        self._passable: dict[Direction, asyncio.Event] = {"in": asyncio.Event(), "out": asyncio.Event()}
        self._connections: set[_Connection] = set()
        self._accepted: list[asyncio.StreamWriter] = []
        self._opened: list[asyncio.Task[Streams]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.heal()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await _next_steps()  # in which the loop hands over what it has accepted
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        opened = await asyncio.gather(*self._opened, return_exceptions=True)
        for writer in (*self._accepted, *(streams[1] for streams in opened if not isinstance(streams, BaseException))):
            writer.transport.abort()
        await _next_steps()  # in which it closes what was aborted

    def delay(self, at_least: float, at_most: float) -> None:
        """Hold each chunk back for a time drawn anew (s)."""
        self._latency = (at_least, at_most)

    def reset(self, direction: Direction, after: int = 0) -> None:
        """Let each connection that there is carry so many more bytes in this direction, and reset it at the next one."""
        for connection in self._connections:
            connection.left[direction] = after

    def blackhole(self, *directions: Direction) -> None:
        """Accept all and forward nothing in these directions."""
        for direction in directions:
            self._passable[direction].clear()

    def heal(self) -> None:
        """Forward again, and first what was held up."""
        self._latency = None
        for passable in self._passable.values():
            passable.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts["connections"] += 1
        self._accepted.append(writer)
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opening = asyncio.create_task(asyncio.open_connection(*self.target))
        self._opened.append(opening)
        try:
            target_reader, target_writer = await asyncio.shield(opening)  # or a connection could be nobody's
        except OSError:
            writer.transport.abort()  # the target is not there
            return
        connection = _Connection((writer, target_writer))
        self._connections.add(connection)
        pumps = [
            asyncio.create_task(self._pump(connection, reader, target_writer, "in")),
            asyncio.create_task(self._pump(connection, target_reader, writer, "out")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            await connection.close()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._connections.discard(connection)
            connection.abort()

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Forward until one side ends or the connection is reset."""
        while chunk := await reader.read(CHUNK):
            if not self._passable[direction].is_set():
                self.counts["held"] += len(chunk)
                await self._passable[direction].wait()
            if self._latency is not None:
                self.counts["delayed"] += 1
                await asyncio.sleep(self._rng.uniform(*self._latency))  # the delay is the fault
            left = connection.left.get(direction)
            passes = chunk if left is None else chunk[:left]
            writer.write(passes)
            await writer.drain()
            self.counts["passed"] += len(passes)
            if left is not None:
                connection.left[direction] = left - len(passes)
                if len(passes) < len(chunk):
                    self.counts["resets"] += 1
                    connection.reset()
                    return


async def _next_steps() -> None:
    """Let the event loop do what it has put off."""
    for _ in range(3):
        await asyncio.sleep(0)
