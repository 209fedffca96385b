"""Symbols as bytes for the wire: one byte a symbol where p allows, else two.

For p <= 257 a plane of bytes holds each symbol's low eight bits; the positions of the one value that does not fit, 256,
follow as a list. For a larger p the plane holds 16-bit words, and the list is empty.
"""

import numpy as np
from numpy.typing import NDArray

from dncfl.common.errors import WireError
from dncfl.common.field import Symbols

Buffer = bytes | memoryview


def pack(symbols: Symbols, p: int) -> tuple[NDArray[np.uint8] | NDArray[np.uint16], NDArray[np.uint32]]:
    """Symbols (n,) below p as a plane and the positions of its escaped symbols: two buffers to send as they are."""
    if p > 257:
        return np.ascontiguousarray(symbols, dtype="<u2"), np.empty(0, dtype="<u4")
    return symbols.astype(np.uint8), np.flatnonzero(symbols == 256).astype("<u4")


def unpack(plane: Buffer, escapes: Buffer, p: int, count: int) -> Symbols:
    """The `count` symbols that `pack` made two buffers of. Raises WireError where these cannot be such symbols."""
    width = 1 if p <= 257 else 2
    if len(plane) != count * width:
        raise WireError(f"a plane of {len(plane)} bytes cannot hold {count} symbols of GF({p})")
    if width == 2:
        symbols: Symbols = np.frombuffer(plane, dtype="<u2").astype(np.uint16, copy=False)
        if len(escapes) or (count and int(symbols.max()) >= p):
            raise WireError(f"a plane holds values that are no symbols of GF({p})")
        return symbols
    symbols = np.frombuffer(plane, dtype=np.uint8).astype(np.uint16)
    if len(escapes) % 4:
        raise WireError(f"{len(escapes)} bytes are no list of 32-bit positions")
    positions = np.frombuffer(escapes, dtype="<u4")
    if positions.size and (int(positions.max()) >= count or p < 257 or np.any(symbols[positions] != 0)):
        raise WireError("an escape points where no escaped symbol can be")
    symbols[positions] = 256
    return symbols
