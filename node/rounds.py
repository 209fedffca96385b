"""The rounds at a node: what the protocol asks for, done one thing after the other. How it hears of others is in `life`."""

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from dncfl.common import wire
from dncfl.common.channel import Outcome
from dncfl.common.errors import DncflError
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload
from dncfl.common.radio import Radio
from dncfl.common.sockets import Socket
from dncfl.common.tasks.model import Vector
from dncfl.common.tasks.training import TrainingStopped
from dncfl.common.trace import letters
from dncfl.node import protocol
from dncfl.node.faults import NodeFaults
from dncfl.node.protocol import NodeProtocol
from dncfl.node.trainer import Trainer
from dncfl.node.worker import Worker

log = logging.getLogger(__name__)

WORTH_A_THREAD = 2**22
"""Products of symbols that take longer than a few milliseconds in the event loop."""


class Rounds:
    """What one life of a node does in the rounds: it trains, transmits, reports and relays."""

    def __init__(
        self,
        node: int,
        code: NetworkCode,
        radio: Radio,
        trainer: Trainer,
        worker: Worker,
        faults: NodeFaults,
        uplink: Socket,
        tell: Callable[[wire.Header], None],
    ) -> None:
        """`uplink` carries transmissions, `tell` says something to the PS."""
        self._node = node
        self._code = code
        self._radio = radio
        self._trainer = trainer
        self._worker = worker
        self._faults = faults
        self._uplink = uplink
        self._tell = tell
        self._bytes_from_peers: Counter[tuple[int, int]] = Counter()
        self.num_trained = 0

    def count_bytes(self, round: int, attempt: int, num_bytes: int) -> None:
        """A peer has sent so many bytes in an attempt."""
        self._bytes_from_peers[round, attempt] += num_bytes

    async def follow(self, node_protocol: NodeProtocol, events: asyncio.Queue[protocol.Event]) -> None:
        """Each event leads to actions, one after the other; how training ends is an event itself."""
        while True:
            for action in node_protocol.handle(await events.get()):
                match action:
                    case protocol.Train(round, theta):
                        if (outcome := await self._train(round, theta)) is not None:
                            events.put_nowait(outcome)
                    case protocol.Transmit(round, attempt, message):
                        await self._publish(round, attempt, 1, [self._node], message)
                    case protocol.Report():
                        self._tell(self._report(action))
                    case protocol.GiveUpRound(round, reason):
                        self._tell(wire.TrainingFailed(node=self._node, round=round, reason=reason))
                    case protocol.Relay(round, attempt, slots, messages):
                        codewords = await self._combine(messages, slots)
                        for slot, codeword in zip(slots, codewords, strict=True):
                            await self._publish(round, attempt, slot, messages, codeword)

    async def _train(self, round: int, theta: Vector) -> protocol.Trained | protocol.TrainingFailed | None:
        """Train in the thread; what it raises costs this node the round, not its life. None when the round is over."""

        def before_step() -> None:
            self._worker.step(round)
            self._faults.before_step()

        try:
            await self._faults.meet("before-training", round)
            self._faults.begin_training()
            update = await self._worker.run(self._trainer.update, theta, round, before_step)
            self.num_trained += 1
            await self._faults.meet("after-training", round)
            return protocol.Trained(round, update)
        except TrainingStopped:
            log.info("node %d gives up round %d, which is over", self._node, round)
            return None
        except Exception as error:
            return protocol.TrainingFailed(round, reason_of(error))

    async def _publish(
        self,
        round: int,
        attempt: int,
        slot: int,
        messages: Sequence[int] | Mapping[int, Payload],
        payload: Payload,
    ) -> None:
        await self._faults.meet(f"before-slot-{slot}", round)
        frames = self._radio.frames(round, attempt, slot, messages, payload)
        for sent in self._faults.sent_for(frames, payload, self._radio):
            self._uplink.send(*sent)
        await self._faults.meet(f"after-slot-{slot}", round)

    async def _combine(self, messages: Mapping[int, Payload], slots: Sequence[int]) -> list[Payload]:
        """The codewords of some relay slots; few symbols are sooner combined than a thread is woken."""
        if len(slots) * sum(map(len, messages.values())) < WORTH_A_THREAD:
            return self._code.codewords(self._node, messages, slots)
        return await self._worker.run(self._code.codewords, self._node, messages, slots)

    def _report(self, action: protocol.Report) -> wire.Report:
        update, place = action.update, f"round {action.round}, attempt {action.attempt}"
        num_heard = action.heard.count(Outcome.DELIVERED)
        log.info("node %d, %s: trained in %.2f s, nodes heard: %d", self._node, place, update.train_seconds, num_heard)
        return wire.Report(
            node=self._node,
            round=action.round,
            attempt=action.attempt,
            heard=letters(action.heard),
            train_seconds=update.train_seconds,
            encode_seconds=update.encode_seconds,
            train_loss=update.train_loss,
            num_clipped=update.num_clipped,
            bytes_from_peers=self._bytes_of_peers(action.round, action.attempt),
        )

    def _bytes_of_peers(self, round: int, attempt: int) -> int:
        """What peers have sent in this attempt; what came too late for a report is forgotten."""
        num_bytes = self._bytes_from_peers[round, attempt]
        for old in [other for other in self._bytes_from_peers if other <= (round, attempt)]:
            del self._bytes_from_peers[old]
        return num_bytes


def reason_of(error: Exception) -> str:
    """What the PS is told of an error: its own words, and where in the code it came from unless it was raised on purpose."""
    if isinstance(error, DncflError):
        return str(error)[:7000]
    return f"{type(error).__name__}: {error}"[:2000] + f"\n{traceback.format_exc()[-4000:]}"
