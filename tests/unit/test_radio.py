"""Transmissions on the wire: what is sent arrives, what is damaged on the way counts as lost."""

from contextlib import suppress

import numpy as np
import pytest

from dncfl.common.channel import BernoulliChannel, Outcome, PerfectChannel
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.errors import WireError
from dncfl.common.payload import Buffer, Payload
from dncfl.common.radio import Radio

CODE = DiversityNetworkCode(3)
PAYLOAD = Payload.of(np.array([0, 255, 256, 7, 256], dtype=np.uint16), CODE.p)


def _radio(station: int) -> Radio:
    return Radio(CODE, PerfectChannel(3), station, 5, incarnation=11)


def _sent() -> list[Buffer]:
    return [bytes(memoryview(frame).cast("B")) for frame in _radio(1).frames(4, 1, 2, [0, 1], PAYLOAD)]


def test_what_is_sent_arrives() -> None:
    reception = _radio(3).receive(_sent())
    header = reception.header
    assert (header.sender, header.incarnation, header.round, header.slot, header.messages) == (1, 11, 4, 2, (0, 1))
    assert reception.outcome is Outcome.DELIVERED
    assert reception.payload is not None
    assert np.array_equal(reception.payload.symbols, PAYLOAD.symbols)


@pytest.mark.parametrize("frame", [2, 3, 4])
def test_any_flipped_bit_is_noticed(frame: int) -> None:
    sent, radio = _sent(), _radio(3)
    size = len(sent[frame])
    for bit in range(8 * size):
        damaged = bytearray(sent[frame])
        damaged[bit // 8] ^= 1 << bit % 8
        reception = radio.receive([*sent[:frame], bytes(damaged), *sent[frame + 1 :]])
        assert (reception.outcome, reception.payload) == (Outcome.LOST, None)
    assert radio.num_damaged == 8 * size


def test_a_damaged_header_never_passes() -> None:
    sent, radio = _sent(), _radio(3)
    for bit in range(8 * len(sent[1])):
        damaged = bytearray(sent[1])
        damaged[bit // 8] ^= 1 << bit % 8
        with suppress(WireError):
            assert radio.receive([sent[0], bytes(damaged), *sent[2:]]).outcome is Outcome.LOST


def test_what_the_channel_erases_is_erased_even_if_it_is_damaged() -> None:
    radio = Radio(CODE, BernoulliChannel(0, np.ones((3, 4))), 3, 5)
    assert radio.receive([*_sent()[:2], b"", b"", b""]).outcome is Outcome.ERASED
    assert radio.num_damaged == 0


def test_a_lie_passes_the_digest() -> None:
    sender = _radio(1)
    lie = sender.lie(sender.frames(4, 1, 2, [0, 1], PAYLOAD), PAYLOAD)
    reception = _radio(3).receive([bytes(memoryview(frame).cast("B")) for frame in lie])
    assert reception.payload is not None
    assert np.flatnonzero(reception.payload.symbols != PAYLOAD.symbols).tolist() == [2]
