"""The message encoder ℰ and decoder ℰ⁻¹: a quantised update as symbols that prove themselves.

A message is side information, one symbol for each byte, followed by one symbol per level:

    num_samples   4 bytes        how many training samples the node holds
    bounds        8 bytes each   the quantiser's bound B of each part of the update, as a double
    checksum      4 bytes        of XXH3 over round, sender, num_samples, bounds and the levels

All of them take part in the network code, so a message that is recovered from codewords alone carries everything that
the PS needs, but for what is the same in all messages of a run: its format. The round and the sender are in the checksum
only: a message of another round or node does not pass.
"""

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xxhash  # a hash at the speed of memory: every receiver of a message checks it

from dncfl.common.errors import ChecksumError
from dncfl.common.payload import Payload, Symbols
from dncfl.common.quantiser import Levels, level_type
from dncfl.common.update import Part, QuantisedUpdate

CHECKSUM = 4
"""Bytes of a checksum: by chance one of 2^32 damaged messages passes."""

LARGEST_VALUE = float(np.finfo(np.float32).max)
"""Of an update; an honest bound is no larger."""

_PLACE = struct.Struct("<II")


@dataclass(frozen=True)
class MessageFormat:
    """What all messages of a run have in common: L levels, and the sizes of an update's parts, each with its own bound."""

    num_levels: int
    part_sizes: tuple[int, ...]

    @cached_property
    def num_values(self) -> int:
        """d, the length of an update."""
        return sum(self.part_sizes)

    @cached_property
    def num_symbols(self) -> int:
        """n, the length of a message."""
        return _side(len(self.part_sizes)).size + CHECKSUM + self.num_values

    @property
    def num_bytes(self) -> int:
        """Bytes of a message's symbols: as many for each as for a level."""
        return self.num_symbols * np.dtype(level_type(self.num_levels)).itemsize


def encode_message(update: QuantisedUpdate, p: int, *, round: int, sender: int) -> Payload:
    """ℰ: the n symbols of GF(p) of an update."""
    side = _side(len(update.parts)).pack(update.num_samples, *(part.bound for part in update.parts))
    side += _checksum(side, update.levels, round, sender)
    symbols = np.empty(len(side) + update.levels.size, dtype=update.levels.dtype)
    symbols[: len(side)] = np.frombuffer(side, dtype=np.uint8)
    symbols[len(side) :] = update.levels
    return Payload.of(symbols, p)


def is_intact(message: Payload, form: MessageFormat, *, round: int, sender: int) -> bool:
    """Whether a message proves itself: what every receiver can tell before it passes the message on."""
    try:
        decode_message(message, form, round=round, sender=sender)
    except ChecksumError:
        return False
    return True


def decode_message(message: Payload, form: MessageFormat, *, round: int, sender: int) -> QuantisedUpdate:
    """ℰ⁻¹: the update in a message. Raises ChecksumError when the message is not what `sender` encoded in `round`."""
    if len(message) != form.num_symbols:
        raise _wrong(f"has {len(message)} symbols: must be {form.num_symbols}", round, sender)
    side, levels = _cut(message.symbols, form)
    if side is None:
        raise _wrong("has damaged side information", round, sender)
    if levels.size and int(levels.max()) >= form.num_levels:
        raise _wrong(f"holds level {int(levels.max())}: must be below {form.num_levels}", round, sender)
    update = _update(side, levels, form)
    if side[-CHECKSUM:] != _checksum(side[:-CHECKSUM], update.levels, round, sender):
        raise _wrong("does not match its checksum", round, sender)
    if wrong := [part.bound for part in update.parts if not 0 < part.bound <= LARGEST_VALUE]:
        raise _wrong(f"holds the quantiser bound {wrong[0]}: must be positive and at most {LARGEST_VALUE:g}", round, sender)
    return update


def read_message(message: Payload, form: MessageFormat) -> QuantisedUpdate:
    """The update in a message that is known to be intact."""
    side, levels = _cut(message.symbols, form)
    assert side is not None
    return _update(side, levels, form)


def _side(num_parts: int) -> struct.Struct:
    """The side information but for the checksum."""
    return struct.Struct(f"<I{num_parts}d")


def _cut(symbols: Symbols, form: MessageFormat) -> tuple[bytes | None, Symbols]:
    """The side information with its checksum, None where its symbols are no bytes; and the levels."""
    end = symbols.size - form.num_values
    side, levels = symbols[:end], symbols[end:]
    if side.itemsize > 1 and side.max() > 255:
        return None, levels
    return side.astype(np.uint8, copy=False).tobytes(), levels


def _update(side: bytes, levels: Symbols, form: MessageFormat) -> QuantisedUpdate:
    num_samples, *bounds = _side(len(form.part_sizes)).unpack(side[:-CHECKSUM])
    return QuantisedUpdate(
        levels=levels.astype(level_type(form.num_levels), copy=False),
        parts=tuple(map(Part, form.part_sizes, bounds)),
        num_samples=num_samples,
    )


def _checksum(side: bytes, levels: Levels, round: int, sender: int) -> bytes:
    """Over the levels as bytes, or as 16-bit words where there are more than 256 of them."""
    digest = xxhash.xxh3_64(_PLACE.pack(round, sender) + side)
    digest.update(levels.astype(levels.dtype.newbyteorder("<"), copy=False).data)
    return digest.digest()[:CHECKSUM]


def _wrong(what: str, round: int, sender: int) -> ChecksumError:
    return ChecksumError(f"the message of node {sender} in round {round} {what}")
