"""ℰ and ℰ⁻¹, and symbols as bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dncfl.common.errors import ChecksumError, WireError
from dncfl.common.field import Symbols
from dncfl.common.message import SIDE_SYMBOLS, QuantisedUpdate, decode_message, encode_message
from dncfl.common.symbols import pack, unpack


def _update(levels: Symbols) -> QuantisedUpdate:
    return QuantisedUpdate(levels=levels, bound=0.1, num_samples=143)


@given(
    arrays(np.uint16, st.integers(0, 50), elements=st.integers(0, 254)),
    st.floats(1e-300, 1e300),
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    st.integers(0, 254),
)
def test_a_message_is_decoded_as_it_was_encoded(levels: Symbols, bound: float, samples: int, round: int, sender: int) -> None:
    symbols = encode_message(QuantisedUpdate(levels=levels, bound=bound, num_samples=samples), round=round, sender=sender)
    assert symbols.dtype == np.uint16
    assert symbols.size == SIDE_SYMBOLS + levels.size
    assert symbols.max(initial=0) < 257
    update = decode_message(symbols, round=round, sender=sender, num_levels=255)
    assert (update.bound, update.num_samples) == (bound, samples)
    assert np.array_equal(update.levels, levels)


@pytest.mark.parametrize("place", range(SIDE_SYMBOLS + 3))
@pytest.mark.parametrize("change", [1, 128, 250])
def test_every_changed_symbol_is_noticed(place: int, change: int) -> None:
    symbols = encode_message(_update(np.array([0, 127, 254], dtype=np.uint16)), round=1, sender=2)
    symbols[place] = (symbols[place] + change) % 257
    with pytest.raises(ChecksumError, match="node 2 in round 1"):
        decode_message(symbols, round=1, sender=2, num_levels=255)


@pytest.mark.parametrize(("round", "sender"), [(2, 2), (1, 3), (2, 1)])
def test_a_message_of_another_round_or_node_does_not_pass(round: int, sender: int) -> None:
    symbols = encode_message(_update(np.zeros(4, dtype=np.uint16)), round=1, sender=2)
    with pytest.raises(ChecksumError):
        decode_message(symbols, round=round, sender=sender, num_levels=255)


def test_what_no_quantiser_makes_is_refused_though_its_checksum_is_right() -> None:
    too_high = encode_message(_update(np.array([255], dtype=np.uint16)), round=1, sender=0)
    with pytest.raises(ChecksumError, match="level 255: must be below 255"):
        decode_message(too_high, round=1, sender=0, num_levels=255)
    levels = np.zeros(1, dtype=np.uint16)
    no_bound = encode_message(QuantisedUpdate(levels=levels, bound=float("nan"), num_samples=1), round=1, sender=0)
    with pytest.raises(ChecksumError, match="bound nan"):
        decode_message(no_bound, round=1, sender=0, num_levels=255)
    with pytest.raises(ChecksumError, match="side information"):
        decode_message(levels, round=1, sender=0, num_levels=255)


@given(st.sampled_from([257, 401, 65_521]).flatmap(lambda p: st.tuples(st.just(p), st.lists(st.integers(0, p - 1)))))
def test_symbols_survive_the_wire(case: tuple[int, list[int]]) -> None:
    p, values = case
    symbols = np.array(values, dtype=np.uint16)
    plane, escapes = pack(symbols, p)
    assert len(plane.tobytes()) == len(values) * (1 if p == 257 else 2)
    assert len(escapes) == (values.count(256) if p == 257 else 0)
    assert np.array_equal(unpack(plane.tobytes(), escapes.tobytes(), p, len(values)), symbols)


@pytest.mark.parametrize(
    ("plane", "escapes", "p"),
    [
        (b"\0" * 3, b"", 257),
        (b"\0" * 4, b"\1", 257),
        (b"\0" * 4, b"\4\0\0\0", 257),
        (b"\1" * 4, b"\0\0\0\0", 257),
        (b"\0" * 8, b"\0\0\0\0", 401),
        (b"\xff" * 8, b"", 401),
        (b"\0" * 4, b"", 401),
    ],
    ids=["short", "no position", "beyond the end", "on another symbol", "needless", "too large", "too narrow"],
)
def test_buffers_that_hold_no_symbols_are_refused(plane: bytes, escapes: bytes, p: int) -> None:
    with pytest.raises(WireError):
        unpack(plane, escapes, p, 4)
