"""Transmissions as frames: a sender's payload out, and at the receiver the drop layer's verdict and the payload in.

The frames are topic, header, the payload's two planes, and two digests: of the header, so that nobody believes a damaged
one, and of all three.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash  # a hash at the speed of memory, so that damaged frames are noticed at no cost

from dncfl.common import wire
from dncfl.common.channel import Channel, DropLayer, Outcome
from dncfl.common.errors import WireError
from dncfl.common.message import MessageFormat
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Buffer, Payload

DIGEST = 8
"""Bytes of a digest."""


@dataclass(frozen=True)
class Reception:
    """One slot of one sender as a receiver sees it; `payload` only where it was delivered.

    A frame that came damaged counts as lost.
    """

    header: wire.Transmission
    outcome: Outcome
    payload: Payload | None = field(repr=False)


class Radio:
    """One station's ends of all its links: a node's, or the PS's, which has number M and only receives."""

    def __init__(
        self,
        code: NetworkCode,
        channel: Channel,
        station: int,
        messages: MessageFormat,
        incarnation: int = 1,
        last_round: int = wire.MAX_ROUND,
        last_attempt: int = wire.MAX_ATTEMPT,
    ) -> None:
        """messages: their format; incarnation: which life of the station this is.

        last_round, last_attempt: the run has no more of them, whatever a frame says.
        """
        self._code = code
        self._station = station
        self._drop_layer = DropLayer(channel, station)
        self._messages = messages
        self._incarnation = incarnation
        self._last_round = last_round
        self._last_attempt = last_attempt
        self.num_damaged = 0

    def frames(self, round: int, attempt: int, slot: int, messages: Iterable[int], payload: Payload) -> list[Any]:
        """The frames of this node's transmission in a slot, made of the given messages; the payload is not copied."""
        header = wire.encode(
            wire.Transmission(
                sender=self._station,
                incarnation=self._incarnation,
                round=round,
                attempt=attempt,
                slot=slot,
                messages=tuple(messages),
            )
        )
        return [_topic(slot), header, payload.plane, payload.escapes, _digests(header, payload.plane, payload.escapes)]

    def lie(self, frames: Sequence[Any], payload: Payload) -> list[Any]:
        """A transmission with one wrong symbol, under a digest that fits: for tests of those who receive it."""
        symbols = payload.symbols.astype(np.uint16)
        symbols[len(payload) // 2] = (int(symbols[len(payload) // 2]) + 1) % self._code.p
        wrong = Payload.of(symbols, self._code.p)
        planes = (wrong.plane, wrong.escapes)
        return [*frames[:2], *planes, _digests(frames[1], *planes)]

    def receive(self, frames: Sequence[Buffer]) -> Reception:
        """What the frames of a transmission amount to. Raises WireError when they are none.

        The channel strikes here: the frames crossed the wire, and count as erased where the link is in outage.
        """
        if len(frames) != 5:
            raise WireError(f"a transmission of {len(frames)} frames: must be 5")
        header = wire.decode(frames[1], wire.TRANSMISSION)
        header.check(
            num_clients=self._code.num_clients,
            last_slot=1 + self._code.relay_slots,
            last_round=self._last_round,
            last_attempt=self._last_attempt,
        )
        if bytes(frames[0]) != _topic(header.slot):
            raise WireError(f"a transmission of slot {header.slot} under the topic {bytes(frames[0][:8])!r}")
        of_header, of_all = frames[4][:DIGEST], frames[4][DIGEST:]
        digest = xxhash.xxh3_64(frames[1])
        if of_header != digest.digest():
            raise WireError("a transmission whose header does not match its digest")
        outcome = self._drop_layer.outcome(round=header.round, attempt=header.attempt, slot=header.slot, sender=header.sender)
        payload = None
        if outcome is Outcome.DELIVERED:
            digest.update(frames[2])
            digest.update(frames[3])
            if of_all != digest.digest():
                self.num_damaged += 1
                return Reception(header, Outcome.LOST, None)
            num_symbols = self._code.num_symbols(header.slot, self._messages)
            payload = Payload.from_frames(frames[2], frames[3], self._code.p, num_symbols)
        return Reception(header, outcome, payload)


def _topic(slot: int) -> bytes:
    return wire.TOPIC_MESSAGE if slot == 1 else wire.TOPIC_CODEWORD


def _digests(header: Any, *planes: Any) -> bytes:
    digest = xxhash.xxh3_64(header)
    of_header = digest.digest()
    for plane in planes:
        digest.update(plane)
    return of_header + digest.digest()
