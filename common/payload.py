"""Payloads: the symbols of one message or codeword, in memory as on the wire, so that none is converted on its way.

For p <= 257 a plane of bytes holds each symbol's low eight bits; the positions of the one value that does not fit, 256,
are listed beside it. For a larger p the plane holds 16-bit words, unless all symbols happen to be bytes, as those of a
message with at most 256 levels are; the list is empty then.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import compiled
from dncfl.common.errors import WireError

Buffer = bytes | memoryview
Symbols = NDArray[np.uint8 | np.uint16]
"""An array of field elements 0..p-1."""

Positions = NDArray[np.uint32]
"""Where in a plane the symbols are that do not fit a byte."""

BYTES_OF_ESCAPE = 4
"""What a symbol that does not fit a byte takes in the frame of escapes: more than anywhere else."""

W = TypeVar("W", np.uint16, np.uint32)


_LITTLE_ENDIAN: dict[type, np.dtype[Any]] = {np.uint16: np.dtype("<u2"), np.uint32: np.dtype("<u4")}


def _no_escapes() -> Positions:
    return np.empty(0, dtype=np.uint32)


def bytes_per_symbol(p: int) -> int:
    """Bytes of a codeword's symbol in its plane."""
    return 1 if p <= 257 else 2


@dataclass(frozen=True, eq=False)
class Payload:
    """n symbols of GF(p): a plane (n,), and the ascending positions where the symbol is 256 and the plane holds 0."""

    plane: Symbols
    escapes: Positions = field(default_factory=_no_escapes)

    def __len__(self) -> int:
        return self.plane.size

    @cached_property
    def symbols(self) -> Symbols:
        """The symbols (n,) as whole numbers: the plane itself where nothing is escaped."""
        if self.escapes.size == 0:
            return self.plane
        symbols = self.plane.astype(np.uint16)
        symbols[self.escapes] = 256
        return symbols

    def at(self, columns: NDArray[np.integer]) -> NDArray[np.uint16]:
        """The symbols (k,) in some columns (k,), without making whole numbers of all others."""
        symbols: NDArray[np.uint16] = self.plane[columns].astype(np.uint16)
        behind = np.searchsorted(self.escapes, columns, side="right")
        symbols[np.searchsorted(self.escapes, columns) < behind] = 256
        return symbols

    @cached_property
    def source(self) -> tuple[int, int, int, int]:
        """Where compiled loops read it: the plane's address and bytes per symbol, the escapes' address and number."""
        return self.plane.ctypes.data, self.plane.itemsize, self.escapes.ctypes.data, self.escapes.size

    @classmethod
    def of(cls, symbols: Symbols, p: int) -> "Payload":
        """The payload of symbols (n,) below p."""
        if symbols.dtype == np.uint8 or p > 257:
            return cls(np.ascontiguousarray(symbols))
        return cls(symbols.astype(np.uint8), np.flatnonzero(symbols == 256).astype(np.uint32))

    @classmethod
    def from_frames(cls, plane: Buffer, escapes: Buffer, p: int, count: int) -> "Payload":
        """The payload of `count` symbols in two buffers, which it reads in place. Raises WireError where they cannot be one."""
        if len(escapes) % 4:
            raise WireError(f"{len(escapes)} bytes are no list of 32-bit positions")
        positions = _words(escapes, np.uint32) if len(escapes) else _no_escapes()
        if len(plane) == count:
            payload = cls(np.frombuffer(plane, dtype=np.uint8), positions)
            bytes_fit = p > 255
        elif len(plane) == 2 * count and p > 257:
            payload = cls(_words(plane, np.uint16), positions)
            bytes_fit = False
        else:
            raise WireError(f"a plane of {len(plane)} bytes cannot hold {count} symbols of GF({p})")
        if not bytes_fit and count and int(payload.plane.max()) >= p:
            raise WireError(f"a plane holds values that are no symbols of GF({p})")
        if positions.size and (p != 257 or not _are_escapes(positions, payload.plane)):
            raise WireError("an escape points where no escaped symbol can be")
        return payload


def _words(buffer: Buffer, kind: type[W]) -> NDArray[W]:
    """The little-endian words in a buffer; where they lie, unless it begins at an odd address, as parts of frames may."""
    words: NDArray[W] = np.frombuffer(buffer, dtype=_LITTLE_ENDIAN[kind]).astype(kind, copy=False)
    return words if words.flags.aligned else words.copy()


@compiled("boolean(Array(uint32, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True))")
def _are_escapes(positions, plane):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Whether the positions ascend within the plane, and it holds 0 at each."""
    last = np.int64(-1)
    for position in positions:
        if position <= last or position >= plane.size or plane[position] != 0:
            return False
        last = np.int64(position)
    return True
