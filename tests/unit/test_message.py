"""ℰ and ℰ⁻¹, and symbols as bytes."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dncfl.common.errors import ChecksumError, WireError
from dncfl.common.field import PrimeField
from dncfl.common.message import MessageFormat, decode_message, encode_message, is_intact
from dncfl.common.payload import Payload
from dncfl.common.quantiser import Levels, level_type
from dncfl.common.update import Part, QuantisedUpdate
from tests.unit.updates import format_of, update_of

SIDE_SYMBOLS = 16
"""4 of the number of samples, 8 of a bound, 4 of the checksum."""


def _message(levels: list[int], bound: float = 0.1) -> Payload:
    """What node 2 says in round 1."""
    return encode_message(update_of(np.array(levels, dtype=np.uint8), bound, 143), 257, round=1, sender=2)


@given(
    st.sampled_from([255, 257, 1000]).flatmap(
        lambda num_levels: st.tuples(
            st.just(num_levels),
            arrays(level_type(num_levels), st.integers(0, 50), elements=st.integers(0, num_levels - 1)),
        )
    ),
    st.lists(st.floats(1e-300, 3e38), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.integers(0, 254),
)
def test_a_message_is_decoded_as_it_was_encoded(
    case: tuple[int, Levels], bounds: list[float], samples: int, round: int, sender: int
) -> None:
    num_levels, levels = case
    p = 257 if num_levels <= 257 else 1009
    sizes = np.diff(np.linspace(0, levels.size, len(bounds) + 1).astype(int)).tolist()
    parts = tuple(map(Part, sizes, bounds))
    sent = QuantisedUpdate(levels=levels, parts=parts, num_samples=samples)
    message = encode_message(sent, p, round=round, sender=sender)
    assert len(message) == MessageFormat(num_levels, tuple(sizes)).num_symbols == 8 + 8 * len(bounds) + levels.size
    assert message.plane.dtype == (np.uint8 if num_levels <= 257 else np.uint16)
    assert message.escapes.size == np.count_nonzero(levels == 256) * (p == 257)
    for received in (message, Payload.of(message.symbols.astype(np.uint16), p)):  # as it was sent, and as decoding gives it
        form = MessageFormat(num_levels, tuple(sizes))
        assert is_intact(received, form, round=round, sender=sender)
        update = decode_message(received, form, round=round, sender=sender)
        assert (update.parts, update.num_samples) == (parts, samples)
        assert np.array_equal(update.levels, levels)


@pytest.mark.parametrize("place", range(SIDE_SYMBOLS + 3))
@pytest.mark.parametrize("change", [1, 2, 128, 250, 256])
def test_every_changed_symbol_is_noticed(place: int, change: int) -> None:
    symbols = _message([0, 127, 254]).symbols.astype(np.uint16)
    symbols[place] = (symbols[place] + change) % 257
    assert not is_intact(Payload.of(symbols, 257), format_of(3), round=1, sender=2)
    with pytest.raises(ChecksumError, match="node 2 in round 1"):
        decode_message(Payload.of(symbols, 257), format_of(3), round=1, sender=2)


@pytest.mark.parametrize(("round", "sender"), [(2, 2), (1, 3), (2, 1)])
def test_a_message_of_another_round_or_node_does_not_pass(round: int, sender: int) -> None:
    with pytest.raises(ChecksumError):
        decode_message(_message([0] * 4), format_of(4), round=round, sender=sender)


@pytest.mark.parametrize("size", [0, 1, 2, 18, 20])
def test_a_message_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ChecksumError, match=f"has {size} symbols: must be 19"):
        decode_message(Payload(np.zeros(size, dtype=np.uint8)), format_of(3), round=1, sender=2)


def test_the_same_symbols_in_other_parts_are_another_message() -> None:
    """Three values in a part, or two bounds and no value but one of them, are as long as each other."""
    two = QuantisedUpdate(levels=np.zeros(2, dtype=np.uint8), parts=(Part(1, 0.1), Part(1, 0.2)), num_samples=1)
    message = encode_message(two, 257, round=1, sender=2)
    assert len(message) == format_of(10).num_symbols
    assert not is_intact(message, format_of(10), round=1, sender=2)
    assert is_intact(message, MessageFormat(255, (1, 1)), round=1, sender=2)


def test_what_no_quantiser_makes_is_refused_though_its_checksum_is_right() -> None:
    with pytest.raises(ChecksumError, match="level 255: must be below 255"):
        decode_message(_message([255]), format_of(1), round=1, sender=2)
    with pytest.raises(ChecksumError, match="side information"):
        decode_message(Payload.of(np.full(SIDE_SYMBOLS, 256, dtype=np.uint16), 257), format_of(0), round=1, sender=2)


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), -1.0, 0.0, 1e39])
@pytest.mark.parametrize("place", range(3))
def test_what_is_no_bound_of_an_update_is_refused_though_its_checksum_is_right(bound: float, place: int) -> None:
    parts = tuple(Part(1, bound if x == place else 0.1) for x in range(3))
    update = QuantisedUpdate(levels=np.zeros(3, dtype=np.uint8), parts=parts, num_samples=1)
    message = encode_message(update, 257, round=1, sender=2)
    with pytest.raises(ChecksumError, match=rf"bound {re.escape(str(bound))}: must be positive and at most 3\.4"):
        decode_message(message, MessageFormat(255, (1, 1, 1)), round=1, sender=2)


@given(st.sampled_from([257, 401, 65_521]).flatmap(lambda p: st.tuples(st.just(p), st.lists(st.integers(0, p - 1)))))
def test_symbols_survive_the_wire(case: tuple[int, list[int]]) -> None:
    p, values = case
    symbols = np.array(values, dtype=np.uint16)
    sent = Payload.of(symbols, p)
    plane, escapes = sent.plane.tobytes(), sent.escapes.tobytes()
    assert len(plane) == len(values) * (1 if p == 257 else 2)
    assert len(escapes) == (4 * values.count(256) if p == 257 else 0)
    assert np.array_equal(Payload.from_frames(plane, escapes, p, len(values)).symbols, symbols)


@pytest.mark.parametrize("p", [257, 401])
def test_frames_may_begin_at_any_address(p: int) -> None:
    symbols = np.array([3, 256, 0, 256], dtype=np.uint16)
    sent = Payload.of(symbols, p)
    for offset in range(1, 5):
        plane, escapes = (bytes(offset) + part.tobytes() for part in (sent.plane, sent.escapes))
        received = Payload.from_frames(memoryview(plane)[offset:], memoryview(escapes)[offset:], p, 4)
        (combined,) = PrimeField(p).combine(np.array([[2]], dtype=np.uint16), [received])
        assert np.array_equal(combined.symbols, 2 * symbols % p)


def test_a_plane_off_the_wire_is_read_where_it_lies() -> None:
    plane = np.arange(8, dtype=np.uint8)
    assert Payload.from_frames(plane.data, b"", 401, 8).plane.ctypes.data == plane.ctypes.data


@pytest.mark.parametrize(
    ("plane", "escapes", "p"),
    [
        (b"\0" * 3, b"", 257),
        (b"\0" * 4, b"\1", 257),
        (b"\0" * 4, b"\4\0\0\0", 257),
        (b"\1" * 4, b"\0\0\0\0", 257),
        (b"\0" * 8, b"\0\0\0\0", 401),
        (b"\xff" * 8, b"", 401),
        (b"\0" * 4, b"\1\0\0\0\0\0\0\0", 257),
        (b"\0" * 8, b"", 257),
    ],
    ids=["short", "no position", "beyond the end", "on another symbol", "needless", "too large", "not ascending", "too wide"],
)
def test_buffers_that_hold_no_symbols_are_refused(plane: bytes, escapes: bytes, p: int) -> None:
    with pytest.raises(WireError):
        Payload.from_frames(plane, escapes, p, 4)
