"""TCP connections that are no ZeroMQ, to every port of a run that goes on.

`python -m tests.integration.test_raw_junk 10000` makes as many as one likes and prints what became of them.
"""

import asyncio
import json
import logging
import random
import struct
import sys
from collections import Counter
from contextlib import closing
from time import monotonic, perf_counter
from typing import Any

import pytest

from dncfl.common import sockets, wire
from dncfl.common.config import load_config
from tests.integration.honest import HONEST, LOOPBACK, HonestRun

NUM_CONNECTIONS = 1000
AT_ONCE = 20
CONFIG = load_config(None, HONEST)

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
"""What ZeroMQ says first, in version 3.0 without encryption."""

Junk = dict[str, bytes]


def _ready(kind: bytes) -> bytes:
    """What ZeroMQ says second: that it is a socket of this kind."""
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    return b"\x04" + bytes([len(body)]) + body


def _frame(body: bytes, *, more: bool = False) -> bytes:
    return struct.pack(">BQ", 2 + more, len(body)) + body


def junk(rng: random.Random) -> Junk:
    """One of each kind of junk."""
    noise = rng.randbytes(rng.choice((1, 10, 100, 5000)))
    hello = GREETING + _ready(rng.choice((b"DEALER", b"SUB", b"XSUB")))
    huge = struct.pack(">BQ", rng.choice((0, 1, 2, 3, 4, 6)), rng.choice((2**20 + 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1)))
    return {
        "nothing": b"",
        "noise": noise,
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "half a greeting": GREETING[: rng.randrange(1, len(GREETING))],
        "greeting and noise": GREETING + noise,
        "greeting of another version": GREETING[:10] + bytes([rng.randrange(256)]) + GREETING[11:] + noise,
        "greeting with other security": GREETING[:12]
        + rng.choice((b"CURVE", b"PLAIN", noise[:20])).ljust(20, b"\0")
        + bytes(32),
        "a socket that does not fit": GREETING + _ready(rng.choice((b"PAIR", b"REQ", b"nonsense", b"", noise[:200]))) + noise,
        "ready and noise": hello + noise,
        "huge length": hello + huge + noise,
        "huge length at once": GREETING + huge,
        "old protocol": b"\x01\x00" + noise,
        "old protocol with a huge length": b"\xff" + struct.pack(">Q", 2**63 - 1) + b"\x00",
        "a message of noise": hello + _frame(noise),
        "a message of many parts": hello + b"".join(_frame(noise[:10], more=i < 49) for i in range(50)),
        "a message without end": hello + _frame(noise, more=True) * 20,
        "a stranger's report": hello + _frame(wire.encode(wire.Loaded(node=0))),
        "a subscription to nothing": hello + _frame(b"\x01" + noise),
    }


KINDS = tuple(junk(random.Random(0)))


async def throw(port: int, data: bytes) -> None:
    """One connection: send, and wait until the other side has read all of it and closed."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    with closing(writer):
        try:
            writer.write(data)
            writer.write_eof()
            while await reader.read(2**16):
                pass
        except OSError:
            pass  # the other side did not even want to read it


async def throw_many(honest: HonestRun, port: int, count: int, counts: Counter[str]) -> None:
    """Junk of every kind to every port of the run, some at once."""
    rng = random.Random(0)
    server = honest.run.server
    ports = {"control": port, "downlink": server._downlink_port, "uplink": server._protocol.members[0].endpoint[1]}

    async def throw_share() -> None:
        while counts.total() < count:
            kind = KINDS[counts.total() % len(KINDS)]
            name = rng.choice(list(ports))
            counts[f"{name}: {kind}"] += 1
            await throw(ports[name], junk(rng)[kind])
            honest.gates.open_up_to(counts.total() - AT_ONCE)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(throw_share())


def run_among_junk(count: int) -> dict[str, Any]:
    """An honest run among so many connections of junk, and how it went."""
    started = perf_counter()
    honest, counts = HonestRun(CONFIG, count), Counter[str]()
    asyncio.run(honest.beside(lambda port: throw_many(honest, port, count, counts)))
    return {
        "connections": counts.total(),
        "by_port": dict(sorted(Counter(name.partition(":")[0] for name in counts.elements()).items())),
        "rounds": len(honest.run.records),
        "lost": honest.num_lost,
        "counts": honest.run.server.counts,
        "as_the_reference": honest.is_as_the_reference(),
        "megabytes_grown": honest.megabytes_grown,
        "seconds": perf_counter() - started,
    }


def test_a_run_among_junk_is_as_the_reference() -> None:
    outcome = run_among_junk(NUM_CONNECTIONS)
    assert outcome["connections"] == NUM_CONNECTIONS
    assert set(outcome["by_port"]) == {"control", "downlink", "uplink"}
    assert (outcome["rounds"], outcome["lost"]) == (CONFIG.rounds, 0)
    assert outcome["as_the_reference"]
    assert outcome["counts"]["rejected_frames"] > 0  # the junk that was a message got as far as the PS itself
    assert outcome["megabytes_grown"] < 50


@pytest.mark.parametrize("said", [b"", GREETING[:10], GREETING], ids=["nothing", "half a greeting", "a greeting"])
def test_a_handshake_that_stalls_is_ended_by_the_other_side(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 300)
    honest = HonestRun(CONFIG, 1)
    seconds: list[float] = []

    async def stall(port: int) -> None:
        started = monotonic()
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        with closing(writer):
            writer.write(said)
            while await reader.read(2**16):  # its own greeting, and then the end
                pass
        seconds.append(monotonic() - started)

    async def stall_everywhere(port: int) -> None:
        server = honest.run.server
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            for each in (port, server._downlink_port, *(member.endpoint[1] for member in server._protocol.members.values())):
                tasks.create_task(stall(each))

    asyncio.run(honest.beside(stall_everywhere))
    assert len(seconds) == 2 + CONFIG.clients
    assert all(0.25 < each < 10 for each in seconds)
    assert honest.is_as_the_reference()


if __name__ == "__main__":
    logging.getLogger("dncfl").setLevel(logging.ERROR)
    sys.stdout.write(json.dumps(run_among_junk(int(sys.argv[1])), indent=1) + "\n")
