"""The message encoder ℰ and decoder ℰ⁻¹: a quantised update as symbols that prove themselves.

A message is `SIDE_SYMBOLS` symbols of side information, one byte each, followed by one symbol per level:

    num_samples   4 bytes   how many training samples the node holds
    bound         8 bytes   the quantiser's bound B as a double
    checksum      4 bytes   CRC-32 over round, sender, num_samples, bound and the levels

All of them take part in the network code, so a message that is recovered from codewords alone carries everything that
the PS needs. The round and the sender are in the checksum only: a message of another round or node does not pass.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from dncfl.common.errors import ChecksumError
from dncfl.common.payload import Payload, Symbols
from dncfl.common.quantiser import Levels, level_type

_SIDE = struct.Struct("<Id")
_CHECKSUM = struct.Struct("<I")
_PLACE = struct.Struct("<II")
SIDE_SYMBOLS = _SIDE.size + _CHECKSUM.size


@dataclass(frozen=True, kw_only=True)
class QuantisedUpdate:
    """What one node says in one round: its update as levels (d,), and what is needed to read them."""

    levels: Levels
    bound: float
    num_samples: int


def encode_message(update: QuantisedUpdate, p: int, *, round: int, sender: int) -> Payload:
    """ℰ: the SIDE_SYMBOLS + d symbols of GF(p) of an update."""
    side = _SIDE.pack(update.num_samples, update.bound)
    checksum = _CHECKSUM.pack(_checksum(side, update.levels, round, sender))
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
    where = f"the message of node {sender} in round {round}"
    symbols = message.symbols
    if (side := _side_of(symbols)) is None:
        raise ChecksumError(f"{where} has damaged side information")
    levels: Levels = symbols[SIDE_SYMBOLS:]
    if levels.size and int(levels.max()) >= num_levels:
        raise ChecksumError(f"{where} holds level {int(levels.max())}: must be below {num_levels}")
    levels = levels.astype(level_type(num_levels), copy=False)
    if not _matches(side, levels, round, sender):
        raise ChecksumError(f"{where} does not match its checksum")
    update = read_message(message, num_levels)
    if not 0 < update.bound < np.inf:
        raise ChecksumError(f"{where} holds the quantiser bound {update.bound}: must be positive and finite")
    return update


def read_message(message: Payload, num_levels: int) -> QuantisedUpdate:
    """The update in a message that is known to be intact."""
    symbols = message.symbols
    num_samples, bound = _SIDE.unpack_from(symbols[:SIDE_SYMBOLS].astype(np.uint8).tobytes())
    levels: Levels = symbols[SIDE_SYMBOLS:].astype(level_type(num_levels), copy=False)
    return QuantisedUpdate(levels=levels, bound=bound, num_samples=num_samples)


def _side_of(symbols: Symbols) -> bytes | None:
    """The side information and the checksum; None where the symbols are too few, or no bytes."""
    if symbols.size < SIDE_SYMBOLS or np.any(symbols[:SIDE_SYMBOLS] > 255):
        return None
    return symbols[:SIDE_SYMBOLS].astype(np.uint8).tobytes()


def _matches(side: bytes, levels: Levels, round: int, sender: int) -> bool:
    expected: int = _CHECKSUM.unpack_from(side, _SIDE.size)[0]
    return expected == _checksum(side[: _SIDE.size], levels, round, sender)


def _checksum(side: bytes, levels: Levels, round: int, sender: int) -> int:
    """Over the levels as bytes, or as 16-bit words where there are more than 256 of them."""
    start = zlib.crc32(side, zlib.crc32(_PLACE.pack(round, sender)))
    return zlib.crc32(levels.astype(levels.dtype.newbyteorder("<"), copy=False).data, start)
