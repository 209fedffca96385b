"""The message encoder ℰ and decoder ℰ⁻¹: a quantised update as symbols that prove themselves.

A message is `SIDE_SYMBOLS` symbols of side information, one byte each, followed by one symbol per level:

    num_samples   4 bytes   how many training samples the node holds
    bound         8 bytes   the quantiser's bound B as a double
    checksum      4 bytes   of XXH3 over round, sender, num_samples, bound and the levels

All of them take part in the network code, so a message that is recovered from codewords alone carries everything that
the PS needs. The round and the sender are in the checksum only: a message of another round or node does not pass.
"""

import struct
from dataclasses import dataclass
from math import inf

import numpy as np
import xxhash  # a hash at the speed of memory: every receiver of a message checks it

from dncfl.common.errors import ChecksumError
from dncfl.common.payload import Payload, Symbols
from dncfl.common.quantiser import Levels, level_type

_SIDE = struct.Struct("<Id")
CHECKSUM = 4
"""Bytes of a checksum: by chance one of 2^32 damaged messages passes."""

_PLACE = struct.Struct("<II")
SIDE_SYMBOLS = _SIDE.size + CHECKSUM


@dataclass(frozen=True, kw_only=True)
class QuantisedUpdate:
    """What one node says in one round: its update as levels (d,), and what is needed to read them."""

    levels: Levels
    bound: float
    num_samples: int


def encode_message(update: QuantisedUpdate, p: int, *, round: int, sender: int) -> Payload:
    """ℰ: the SIDE_SYMBOLS + d symbols of GF(p) of an update."""
    side = _SIDE.pack(update.num_samples, update.bound)
    checksum = _checksum(side, update.levels, round, sender)
    symbols = np.empty(SIDE_SYMBOLS + update.levels.size, dtype=update.levels.dtype)
    symbols[:SIDE_SYMBOLS] = np.frombuffer(side + checksum, dtype=np.uint8)
    symbols[SIDE_SYMBOLS:] = update.levels
    return Payload.of(symbols, p)


def is_intact(message: Payload, *, round: int, sender: int, num_levels: int) -> bool:
    """Whether a message proves itself: what every receiver can tell before it passes the message on."""
    try:
        decode_message(message, round=round, sender=sender, num_levels=num_levels)
    except ChecksumError:
        return False
    return True


def decode_message(message: Payload, *, round: int, sender: int, num_levels: int) -> QuantisedUpdate:
    """ℰ⁻¹: the update in a message. Raises ChecksumError when the message is not what `sender` encoded in `round`."""
    symbols = message.symbols
    if (side := _side_of(symbols)) is None:
        raise _wrong("has damaged side information", round, sender)
    levels: Levels = symbols[SIDE_SYMBOLS:]
    if levels.size and int(levels.max()) >= num_levels:
        raise _wrong(f"holds level {int(levels.max())}: must be below {num_levels}", round, sender)
    levels = levels.astype(level_type(num_levels), copy=False)
    if side[_SIDE.size :] != _checksum(side[: _SIDE.size], levels, round, sender):
        raise _wrong("does not match its checksum", round, sender)
    update = _update(side, levels)
    if not 0 < update.bound < inf:
        raise _wrong(f"holds the quantiser bound {update.bound}: must be positive and finite", round, sender)
    return update


def read_message(message: Payload, num_levels: int) -> QuantisedUpdate:
    """The update in a message that is known to be intact."""
    symbols = message.symbols
    side = symbols[:SIDE_SYMBOLS].astype(np.uint8, copy=False).tobytes()
    return _update(side, symbols[SIDE_SYMBOLS:].astype(level_type(num_levels), copy=False))


def _update(side: bytes, levels: Levels) -> QuantisedUpdate:
    num_samples, bound = _SIDE.unpack_from(side)
    return QuantisedUpdate(levels=levels, bound=bound, num_samples=num_samples)


def _side_of(symbols: Symbols) -> bytes | None:
    """The side information and the checksum; None where the symbols are too few, or no bytes."""
    side = symbols[:SIDE_SYMBOLS]
    if side.size < SIDE_SYMBOLS or (side.itemsize > 1 and side.max() > 255):
        return None
    return side.astype(np.uint8, copy=False).tobytes()


def _checksum(side: bytes, levels: Levels, round: int, sender: int) -> bytes:
    """Over the levels as bytes, or as 16-bit words where there are more than 256 of them."""
    digest = xxhash.xxh3_64(_PLACE.pack(round, sender) + side)
    digest.update(levels.astype(levels.dtype.newbyteorder("<"), copy=False).data)
    return digest.digest()[:CHECKSUM]


def _wrong(what: str, round: int, sender: int) -> ChecksumError:
    return ChecksumError(f"the message of node {sender} in round {round} {what}")
