"""Mutated frames of every kind, fed to the callbacks of a PS and its nodes while they do an honest run.

`python -m tests.integration.test_fuzz 1000000` sends as many as one likes and prints what became of them.

A mutant stands for damage, for repetition, for what is long past, or for a stranger. What is valid and in the name of one who
is believed would be a lie, which is another matter: such mutants are kept out, as are a stranger's joins of a free number.
"""

import asyncio
import json
import logging
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any
from unittest.mock import patch

import msgpack

from dncfl.common import radio as radio_module
from dncfl.common import wire
from dncfl.common.config import Config, load_config
from dncfl.common.errors import WireError
from dncfl.common.payload import Buffer
from dncfl.common.sockets import Socket
from dncfl.node.life import Life
from dncfl.node.protocol import NodeProtocol
from dncfl.server.process import ServerProcess
from dncfl.server.protocol import ServerProtocol
from tests.integration.honest import HONEST, Gates, HonestRun

NUM_MUTANTS = 50_000
BATCH = 50
MOST_WAITING = 1000
"""Events that wait at one station before it gets more; a node that trains handles none."""

SAMPLES = 4
"""Valid frames that are kept of each kind at each callback."""

STRANGERS = (b"stranger", b"\x00\x01\x02\x03\x04", b"0.1", b"x" * 255)
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 255, 256, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.5, -0.0, 1e308, -1e308, float("inf"), float("nan"), True, False, None),
    *("", "x", "d" * 255, "ddl", "x" * 40_000, "\x00\x1b[2J", "join", "failed", b"", b"bytes"),
    *([], [0], [0, 0], [1, 0], [2**64 - 1], list(range(256)), [[]], {}, {"kind": "join"}),
)
KINDS = ("join", "loaded", "connected", "alive", "report", "training_failed", "failed", "model", "stop", "transmission", "x")
CONFIG = load_config(None, HONEST)

Frames = list[bytes]


@dataclass
class Target:
    """A callback that frames are handed to, and valid ones that it has got, by kind."""

    take: Callable[[list[Buffer]], None]
    owner: ServerProcess | Life
    name: str
    samples: dict[str, list[Frames]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, take: Any) -> "Target":
        method: Any = take.func if isinstance(take, partial) else take
        return cls(take, method.__self__, method.__name__)

    @property
    def header(self) -> int:
        """Which frame the header is, or the subscription."""
        at_node = isinstance(self.owner, Life) and self.name == "_take_control"
        return 0 if at_node or self.name == "_take_subscription" else 1

    @property
    def radio(self) -> radio_module.Radio | None:
        if self.name != "_take_transmission":
            return None
        # at a node the callback is a partial of its radio
        return self.owner._radio if isinstance(self.owner, ServerProcess) else self.take.args[0]  # type: ignore[attr-defined]

    def keep(self, frames: list[Buffer]) -> None:
        copied = [bytes(frame) for frame in frames]
        kind = "subscription"
        if self.name != "_take_subscription":
            kind = msgpack.unpackb(copied[self.header])["kind"]
        self.samples[kind] = [*self.samples[kind], copied][-SAMPLES:]


class Fuzzer:
    """Mutates what the callbacks of this process have got, and follows what becomes of it."""

    def __init__(self, config: Config, server: ServerProcess, seed: int) -> None:
        self.fates: Counter[str] = Counter()
        self.by_callback: Counter[str] = Counter()
        self.num_kept_out = 0
        self._config = config
        self._server = server
        self._rng = random.Random(seed)
        self._targets: list[Target] = []
        self._pending: dict[int, object] = {}
        self._queued_at_nodes = 0

    @contextmanager
    def tapping(self) -> Iterator[None]:
        """See what sockets hand to whom, and what the protocols make of the mutants."""
        read = Socket.read

        async def tapped(socket: Socket, take: Callable[[list[Buffer]], None]) -> None:
            target = Target.of(take)
            self._targets.append(target)

            def keep_and_take(frames: list[Buffer]) -> None:
                target.keep(frames)
                take(frames)

            await read(socket, keep_and_take)

        with ExitStack() as patches:
            patches.enter_context(patch.object(Socket, "read", tapped))
            for protocol in (ServerProtocol, NodeProtocol):
                patches.enter_context(patch.object(protocol, "handle", self._following(protocol.handle)))
            yield

    def _following(self, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def following(protocol: Any, event: Any) -> Any:
            stale = protocol.num_stale
            actions = handle(protocol, event)
            if self._pending.pop(id(event), None) is not None:
                self.fates["stale" if protocol.num_stale > stale else "accepted"] += 1
            return actions

        return following

    async def send(self, count: int, gates: Gates) -> None:
        while (sent := self.by_callback.total()) < count:
            for _ in range(min(BATCH, count - sent)):
                self._send_one()
            gates.open_up_to(self.by_callback.total())
            await asyncio.sleep(0)

    def _send_one(self) -> None:
        owner = self._rng.choice(list({id(target.owner): target.owner for target in self._targets}.values()))
        target = self._rng.choice([target for target in self._targets if target.owner is owner])
        if not target.samples or target.owner._events.qsize() > MOST_WAITING:
            return
        original = self._rng.choice(target.samples[self._rng.choice(list(target.samples))])
        mutant = self._mutant(target, original)
        if not self._is_harmless(target, original, mutant):
            self.num_kept_out += 1
            return
        self.by_callback[f"{type(target.owner).__name__}.{target.name}"] += 1
        self._hand_over(target, mutant)

    def _hand_over(self, target: Target, mutant: Frames) -> None:
        """Exactly one thing becomes of each frame."""
        owner, radio = target.owner, target.radio
        headers = owner._control_headers if isinstance(owner, Life) else None
        rejected, before, damaged = owner._num_rejected, owner._events.qsize(), radio.num_damaged if radio else 0
        queued = headers.qsize() if headers else 0
        target.take(list(mutant))
        if owner._num_rejected > rejected:
            self.fates["rejected"] += 1
        elif owner._events.qsize() > before:
            if radio and radio.num_damaged > damaged:
                self.fates["damaged"] += 1
            else:
                events: Any = owner._events
                event = events._queue[-1]
                self._pending[id(event)] = event
        elif headers and headers.qsize() > queued:
            self._queued_at_nodes += 1  # the node refuses it in its turn
        else:
            assert self._is_only_noted(target, mutant), (target.name, mutant)
            self.fates["accepted"] += 1

    def settle(self) -> None:
        """The run is over: what had not been handled by then came too late."""
        nodes = {id(target.owner): target.owner for target in self._targets if isinstance(target.owner, Life)}
        left = sum(node._control_headers.qsize() for node in nodes.values())
        self.fates["rejected"] += self._queued_at_nodes - left
        self.fates["stale"] += len(self._pending) + left
        for name in ("_take_control", "_take_transmission", "_take_subscription"):
            assert self.by_callback[f"ServerProcess.{name}"]
            assert self.by_callback[f"Life.{name}"]
        assert self.by_callback["Life._take_downlink"]

    def _is_only_noted(self, target: Target, frames: Frames) -> bool:
        """Whether these frames are valid, and of a kind that no event follows from."""
        if target.name == "_take_subscription":
            return frames[0][:1] in (b"\x00", b"\x01")
        if isinstance(target.owner, Life):
            return isinstance(wire.decode(frames[0], wire.FROM_SERVER), wire.Alive | wire.Ping)
        header = wire.decode(frames[1], wire.FROM_NODE)
        return isinstance(header, wire.Alive) or (
            isinstance(header, wire.Join) and header.node in self._server._liveness._claims
        )

    def _mutant(self, target: Target, original: Frames) -> Frames:
        rng, frames = self._rng, list(original)
        if isinstance(target.owner, ServerProcess) and target.name == "_take_control" and rng.random() < 0.5:
            frames[0] = rng.choice(STRANGERS)
        i = rng.randrange(len(frames))
        match rng.choice(("flip", "truncate", "lengthen", "repeat", "repeat frame", "drop", "swap", "junk", *["field"] * 6)):
            case "flip":
                frames[i] = self._flipped(frames[i])
            case "truncate":
                frames[i] = frames[i][: rng.randrange(len(frames[i]) + 1)]
            case "lengthen":
                frames[i] += rng.randbytes(rng.choice((1, 4, 100)))
            case "repeat frame":
                frames.insert(i, frames[i])
            case "drop" if len(frames) > 1:
                del frames[i]
            case "swap":
                k = rng.randrange(len(frames))
                frames[i], frames[k] = frames[k], frames[i]
            case "junk":
                frames[target.header] = rng.randbytes(rng.choice((0, 1, 10, 1000)))
            case "field":
                frames[target.header] = self._with_other_field(target, frames[target.header])
                if target.name == "_take_transmission" and rng.random() < 0.7:
                    frames[4] = radio_module._digests(*frames[1:4])
        return frames

    def _flipped(self, frame: bytes) -> bytes:
        damaged = bytearray(frame)
        for _ in range(self._rng.randint(1, 8) if frame else 0):
            damaged[self._rng.randrange(len(frame))] ^= 1 << self._rng.randrange(8)
        return bytes(damaged)

    def _with_other_field(self, target: Target, frame: bytes) -> bytes:
        rng = self._rng
        if target.name == "_take_subscription":
            incarnation = rng.choice((b"0", b"1", b"99999999999999999999", b"%d" % rng.randrange(2**63)))
            topic = rng.choice(
                (b"~%d.%s" % (rng.randrange(300), incarnation), b"~ps.0", b"U", b"C", b"D", b"~", rng.randbytes(8))
            )
            return rng.choice((b"\x00", b"\x01", b"\x02")) + topic
        fields = msgpack.unpackb(frame)
        name = rng.choice(list(fields))
        value = fields[name]
        match rng.randrange(6):
            case 0:
                del fields[name]
            case 1:
                fields[rng.choice(("unknown", "", "x" * 1000))] = rng.choice(VALUES)
            case 2 if isinstance(value, int):
                fields[name] = value + rng.choice((-2, -1, 1, 2))
            case 3 if isinstance(value, list):
                fields[name] = value * rng.choice((0, 2, 100))
            case 4:
                fields["kind"] = rng.choice(KINDS)
            case _:
                fields[name] = rng.choice(VALUES)
        return bytes(msgpack.packb(fields))

    def _is_harmless(self, target: Target, original: Frames, mutant: Frames) -> bool:
        """Whether these frames are no lie: nobody who is believed says something new in them."""
        owner = target.owner
        try:
            if target.name == "_take_subscription":
                return not (
                    isinstance(owner, Life) and mutant[0][:1] == b"\x00" and mutant[0][1:] in owner._neighbours._hearers
                )
            if target.name == "_take_transmission":
                return self._is_harmless_transmission(target, original, mutant)
            if isinstance(owner, ServerProcess):
                return self._is_harmless_to_server(mutant)
            if target.name == "_take_downlink":
                header = wire.decode(mutant[1], wire.DOWNLINK)
                return header.round < self._round or (isinstance(header, wire.Model) and mutant[1] == original[1])
        except (IndexError, WireError):
            return True
        return self._is_harmless_to_node(owner, mutant)

    @property
    def _round(self) -> int:
        """The round that the PS is in."""
        return self._server._protocol.progress.round

    def _is_harmless_to_server(self, frames: Frames) -> bool:
        header = wire.decode(frames[1], wire.FROM_NODE)
        node = self._server._nodes_by_address.get(frames[0])
        if len(frames) != 2:
            return True
        if isinstance(header, wire.Join):
            member = self._server._protocol.members.get(header.node)
            if node is None:
                return member is not None or header.node >= self._config.clients
            return header.node != node or (member is not None and header.incarnation == member.incarnation)
        if node is None or isinstance(header, wire.Alive | wire.Loaded) or header.node != node:
            return True
        return not isinstance(header, wire.Connected | wire.Failed) and header.round not in (self._round, self._round + 1)

    @staticmethod
    def _is_harmless_to_node(node: Life, frames: Frames) -> bool:
        try:
            header = wire.decode(frames[0], wire.FROM_SERVER)
        except WireError:
            return True
        if isinstance(header, wire.Peers):
            return header.edition <= node._neighbours.edition
        return isinstance(header, wire.Alive | wire.Ping | wire.Welcome) or len(frames) > 1

    def _is_harmless_transmission(self, target: Target, original: Frames, mutant: Frames) -> bool:
        header = wire.decode(mutant[1], wire.TRANSMISSION)
        if len(mutant) != 5 or mutant[1] == original[1] or mutant[4][:8] != radio_module._digests(mutant[1])[:8]:
            return True
        member = self._server._protocol.members.get(header.sender)
        if member is None or header.incarnation != member.incarnation:
            return True
        is_far = isinstance(target.owner, ServerProcess) and header.attempt > self._server._protocol.progress.attempt + 1
        return header.round < self._round or header.round > self._config.rounds or is_far


@dataclass(frozen=True)
class Outcome:
    """How an honest run among mutants went."""

    sent: int
    fates: dict[str, int]
    by_callback: dict[str, int]
    kept_out: int
    rounds: int
    lost: int
    as_the_reference: bool
    megabytes_grown: float
    seconds: float


def fuzz(num_mutants: int, seed: int = 0) -> Outcome:
    """An honest run in this process while so many mutants are fed to its callbacks. Raises whatever a callback raises."""
    started = perf_counter()
    honest = HonestRun(CONFIG, num_mutants)
    fuzzer = Fuzzer(CONFIG, honest.run.server, seed)
    with fuzzer.tapping():
        asyncio.run(honest.beside(lambda _: fuzzer.send(num_mutants, honest.gates)))
    fuzzer.settle()
    return Outcome(
        sent=fuzzer.by_callback.total(),
        fates=dict(fuzzer.fates),
        by_callback=dict(fuzzer.by_callback),
        kept_out=fuzzer.num_kept_out,
        rounds=len(honest.run.records),
        lost=honest.num_lost,
        as_the_reference=honest.is_as_the_reference(),
        megabytes_grown=honest.megabytes_grown,
        seconds=perf_counter() - started,
    )


def test_an_honest_run_among_mutated_frames() -> None:
    logging.getLogger("dncfl").setLevel(logging.ERROR)  # or pytest would keep a line for each
    try:
        outcome = fuzz(NUM_MUTANTS)
    finally:
        logging.getLogger("dncfl").setLevel(logging.NOTSET)
    assert outcome.sent == NUM_MUTANTS == sum(outcome.fates.values())
    assert set(outcome.fates) == {"rejected", "damaged", "stale", "accepted"}
    assert (outcome.rounds, outcome.lost) == (CONFIG.rounds, 0)
    assert outcome.as_the_reference
    assert outcome.megabytes_grown < 50


if __name__ == "__main__":
    logging.getLogger("dncfl").setLevel(logging.ERROR)
    sys.stdout.write(json.dumps(fuzz(int(sys.argv[1])).__dict__, indent=1) + "\n")
