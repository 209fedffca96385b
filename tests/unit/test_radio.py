"""Transmissions on the wire: what is sent arrives, what is damaged on the way counts as lost."""

import numpy as np
import pytest

from dncfl.common import wire
from dncfl.common.channel import BernoulliChannel, Outcome, PerfectChannel
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.errors import WireError
from dncfl.common.payload import Buffer, Payload
from dncfl.common.radio import DIGEST, Radio
from tests.unit.updates import format_of

CODE = DiversityNetworkCode(3)
SIZE = format_of(5)
PAYLOAD = Payload.of(np.resize(np.array([0, 255, 256, 7, 256], dtype=np.uint16), SIZE.num_symbols), CODE.p)


def _radio(station: int) -> Radio:
    return Radio(CODE, PerfectChannel(3), station, SIZE, incarnation=11)


def _sent() -> list[Buffer]:
    return [bytes(memoryview(frame).cast("B")) for frame in _radio(1).frames(4, 1, 2, [0, 1], PAYLOAD)]


def test_what_is_sent_arrives() -> None:
    reception = _radio(3).receive(_sent())
    header = reception.header
    assert (header.sender, header.incarnation, header.round, header.slot, header.messages) == (1, 11, 4, 2, (0, 1))
    assert reception.outcome is Outcome.DELIVERED
    assert reception.payload is not None
    assert np.array_equal(reception.payload.symbols, PAYLOAD.symbols)


@pytest.mark.parametrize(("frame", "start"), [(2, 0), (3, 0), (4, DIGEST)])
def test_any_flipped_bit_is_noticed(frame: int, start: int) -> None:
    sent, radio = _sent(), _radio(3)
    size = len(sent[frame]) - start
    for bit in range(8 * start, 8 * len(sent[frame])):
        damaged = bytearray(sent[frame])
        damaged[bit // 8] ^= 1 << bit % 8
        reception = radio.receive([*sent[:frame], bytes(damaged), *sent[frame + 1 :]])
        assert (reception.outcome, reception.payload) == (Outcome.LOST, None)
    assert radio.num_damaged == 8 * size


@pytest.mark.parametrize("outage", [0, 1])
@pytest.mark.parametrize("frame", [1, 4])
def test_nobody_believes_a_damaged_header(frame: int, outage: int) -> None:
    """Whatever the channel does: a header that claims to be of another slot must not stand in its way."""
    sent, radio = _sent(), Radio(CODE, BernoulliChannel(0, np.full((3, 4), outage)), 3, SIZE)
    for bit in range(8 * len(sent[frame][: DIGEST if frame == 4 else None])):
        damaged = bytearray(sent[frame])
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            radio.receive([*sent[:frame], bytes(damaged), *sent[frame + 1 :]])


def test_what_the_channel_erases_is_erased_even_if_it_is_damaged() -> None:
    radio = Radio(CODE, BernoulliChannel(0, np.ones((3, 4))), 3, SIZE)
    sent = _sent()
    assert radio.receive([*sent[:2], b"", b"", sent[4]]).outcome is Outcome.ERASED
    assert radio.num_damaged == 0


def test_rounds_that_the_run_does_not_have_are_refused() -> None:
    with pytest.raises(WireError, match="round 4, attempt 1: there are 3 rounds"):
        Radio(CODE, PerfectChannel(3), 3, SIZE, last_round=3).receive(_sent())


def test_attempts_that_the_run_does_not_make_are_refused() -> None:
    """A recorded trace, for one, holds nothing for them."""
    again = [bytes(memoryview(frame).cast("B")) for frame in _radio(1).frames(4, 3, 2, [0, 1], PAYLOAD)]
    with pytest.raises(WireError, match=r"attempt 3: .* rounds of up to 2 attempts"):
        Radio(CODE, PerfectChannel(3), 3, SIZE, last_attempt=2).receive(again)


def test_a_codeword_is_no_message_whatever_its_topic_says() -> None:
    sent = _sent()
    assert sent[0] == wire.TOPIC_CODEWORD
    with pytest.raises(WireError, match="slot 2 under the topic"):
        _radio(3).receive([wire.TOPIC_MESSAGE, *sent[1:]])


def test_a_lie_passes_the_digest() -> None:
    sender = _radio(1)
    lie = sender.lie(sender.frames(4, 1, 2, [0, 1], PAYLOAD), PAYLOAD)
    reception = _radio(3).receive([bytes(memoryview(frame).cast("B")) for frame in lie])
    assert reception.payload is not None
    assert np.flatnonzero(reception.payload.symbols != PAYLOAD.symbols).tolist() == [len(PAYLOAD) // 2]
