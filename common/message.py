"""The message encoder ℰ and decoder ℰ⁻¹: a quantised update as symbols that prove themselves.

A message is side information, one symbol for each byte, followed by one symbol per level:

    num_samples   4 bytes   how many training samples the node holds
    num_parts     4 bytes   how many parts of the update have a quantiser's bound of their own
    for each part:
        size      4 bytes   how many levels it has
        bound     8 bytes   its bound B as a double
    checksum      4 bytes   of XXH3 over round, sender, all of this and the levels

All of them take part in the network code, so a message that is recovered from codewords alone carries everything that
the PS needs. The round and the sender are in the checksum only: a message of another round or node does not pass.
"""

import struct
from math import inf
from typing import NamedTuple

import numpy as np
import xxhash  # a hash at the speed of memory: every receiver of a message checks it

from dncfl.common.errors import ChecksumError
from dncfl.common.payload import Payload, Symbols
from dncfl.common.quantiser import Levels, level_type
from dncfl.common.update import Part, QuantisedUpdate

_HEAD = struct.Struct("<II")
_PART = struct.Struct("<Id")
CHECKSUM = 4
"""Bytes of a checksum: by chance one of 2^32 damaged messages passes."""

_PLACE = struct.Struct("<II")


class MessageSize(NamedTuple):
    """How large every message of a run is."""

    num_values: int
    """d, the length of an update"""
    num_parts: int = 1
    """how many parts of it have a quantiser's bound of their own"""

    @property
    def num_symbols(self) -> int:
        """n, the length of a message."""
        return _side_symbols(self.num_parts) + self.num_values


def encode_message(update: QuantisedUpdate, p: int, *, round: int, sender: int) -> Payload:
    """ℰ: the n symbols of GF(p) of an update."""
    side = _HEAD.pack(update.num_samples, len(update.parts)) + b"".join(_PART.pack(*part) for part in update.parts)
    side += _checksum(side, update.levels, round, sender)
    symbols = np.empty(len(side) + update.levels.size, dtype=update.levels.dtype)
    symbols[: len(side)] = np.frombuffer(side, dtype=np.uint8)
    symbols[len(side) :] = update.levels
    return Payload.of(symbols, p)


def is_intact(message: Payload, *, round: int, sender: int, num_levels: int, num_values: int) -> bool:
    """Whether a message proves itself: what every receiver can tell before it passes the message on."""
    try:
        decode_message(message, round=round, sender=sender, num_levels=num_levels, num_values=num_values)
    except ChecksumError:
        return False
    return True


def decode_message(message: Payload, *, round: int, sender: int, num_levels: int, num_values: int) -> QuantisedUpdate:
    """ℰ⁻¹: the update (num_values,) in a message.

    Raises ChecksumError when the message is not what `sender` encoded in `round`, or no update of this length.
    """
    symbols = message.symbols
    if (side := _side_of(symbols)) is None:
        raise _wrong("has damaged side information", round, sender)
    levels: Levels = symbols[len(side) :]
    parts = _parts_of(side)
    if not sum(part.size for part in parts) == levels.size == num_values:
        raise _wrong(f"tells of parts of {sum(part.size for part in parts)} values: must be {num_values}", round, sender)
    if levels.size and int(levels.max()) >= num_levels:
        raise _wrong(f"holds level {int(levels.max())}: must be below {num_levels}", round, sender)
    levels = levels.astype(level_type(num_levels), copy=False)
    if side[-CHECKSUM:] != _checksum(side[:-CHECKSUM], levels, round, sender):
        raise _wrong("does not match its checksum", round, sender)
    if wrong := [part.bound for part in parts if not 0 < part.bound < inf]:
        raise _wrong(f"holds the quantiser bound {wrong[0]}: must be positive and finite", round, sender)
    return QuantisedUpdate(levels=levels, parts=parts, num_samples=_HEAD.unpack_from(side)[0])


def read_message(message: Payload, num_levels: int) -> QuantisedUpdate:
    """The update in a message that is known to be intact."""
    side = _side_of(message.symbols)
    assert side is not None
    levels: Levels = message.symbols[len(side) :].astype(level_type(num_levels), copy=False)
    return QuantisedUpdate(levels=levels, parts=_parts_of(side), num_samples=_HEAD.unpack_from(side)[0])


def _side_symbols(num_parts: int) -> int:
    return _HEAD.size + _PART.size * num_parts + CHECKSUM


def _side_of(symbols: Symbols) -> bytes | None:
    """The side information and the checksum; None where the symbols are too few, or no bytes."""
    if (head := _bytes_of(symbols, _HEAD.size)) is None:
        return None
    return _bytes_of(symbols, _side_symbols(_HEAD.unpack(head)[1]))


def _bytes_of(symbols: Symbols, count: int) -> bytes | None:
    """The first symbols as bytes; None where they are too few, or no bytes."""
    first = symbols[:count]
    if first.size < count or (first.itemsize > 1 and first.max() > 255):
        return None
    return first.astype(np.uint8, copy=False).tobytes()


def _parts_of(side: bytes) -> tuple[Part, ...]:
    return tuple(Part(*part) for part in _PART.iter_unpack(side[_HEAD.size : -CHECKSUM]))


def _checksum(side: bytes, levels: Levels, round: int, sender: int) -> bytes:
    """Over the levels as bytes, or as 16-bit words where there are more than 256 of them."""
    digest = xxhash.xxh3_64(_PLACE.pack(round, sender) + side)
    digest.update(levels.astype(levels.dtype.newbyteorder("<"), copy=False).data)
    return digest.digest()[:CHECKSUM]


def _wrong(what: str, round: int, sender: int) -> ChecksumError:
    return ChecksumError(f"the message of node {sender} in round {round} {what}")
