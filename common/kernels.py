"""The compiled product over GF(p): many output symbols per instruction, one pass over memory, no copies of payloads.

Blocks of columns are brought into the first-level cache as floating-point residues around zero, multiplied there by
factors around zero, and reduced before they leave. `exact_type` tells in which type this is exact. Payloads are read
where they lie, by their addresses: arrays of many different payloads would cost the vector instructions. There are more
streams than a processor foresees by itself, so the next block's lines are asked for while this one is computed.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import carray, compiled, inlined, narrow, pointer, prefetch, trailing_zeros
from dncfl.common.payload import Payload, Positions, Symbols
from dncfl.common.threads import in_parts

FEW_ROWS, MANY_ROWS, DOUBLE_ROWS = 640, 256, 64
"""Columns per block, so that what is read again for each sum stays in the first-level cache: ten rows of float32, forty of
them, or sixty-four of float64 take 26 to 41 kB."""

CACHE_LINE = 64
"""Bytes that are fetched from memory together."""

STRIDE = 64
"""Symbols that are packed together, see `narrow`; a block is so many, or a multiple."""

EXACT_IN_FLOAT32 = 2_700_000
"""Sums below this are reduced exactly in float32, see `exact_type`."""

GROUP = 5
"""Terms that are added up before a sum is stored; rows are filled up to whole groups with zeros."""


def exact_type(p: int, num_terms: int, wide: bool) -> type[np.float32] | type[np.float64]:
    """The narrowest type in which a product of num_terms <= 255 terms is exact; `wide` when a payload holds 16-bit words.

    A sum s must be exact, and ⌊s·(1/p) + 1/(2p)⌋ must be ⌊s/p⌋ though 1/p, the product and the sum are rounded, each by
    2^-24 at most of about |s|/p: s/p + 1/(2p) lies at least 1/(2p) from a whole number, so |s| < 2^23/3 suffices in
    float32. In float64 every p < 2^16 stays far below the same limit of 2^52/3.
    """
    largest_sum = num_terms * (p // 2) * _centre(p, wide) + p
    return np.float32 if largest_sum < EXACT_IN_FLOAT32 else np.float64


def _centre(p: int, wide: bool) -> int:
    """What is taken off each symbol, so that none is further from zero than this."""
    return p // 2 if wide else 128


@inlined
def _fetch(address, num_bytes):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Have so many bytes brought into the cache meanwhile."""
    for offset in range(0, num_bytes, CACHE_LINE):
        prefetch(np.uint64(address + offset))


@inlined
def _load(source, start, width, centre, row):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Columns start.. of one payload, around zero."""
    plane, itemsize = source[0], source[1]
    _fetch(plane + np.uint64(itemsize * (start + width)), itemsize * width)
    if itemsize == 1:
        symbols = carray(pointer(plane + np.uint64(start)), (width,), np.uint8)
        for x in range(width):
            row[x] = symbols[x] - centre
    else:
        words = carray(pointer(plane + np.uint64(2 * start)), (width,), np.uint16)
        for x in range(width):
            row[x] = words[x] - centre


@inlined
def _load_escaped(source, first_escape, start, width, centre, row):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The symbols 256 in these columns; returns the first escape behind them."""
    num_escapes = np.int64(source[3])
    escapes = carray(pointer(source[2]), (num_escapes,), np.uint32)
    i = first_escape
    while i < num_escapes and escapes[i] < start + width:
        row[escapes[i] - start] = 256 - centre
        i += 1
    return i


@inlined
def _first_escapes(sources, first):  # type: ignore[no-untyped-def]  # pragma: no cover
    """For each payload the first escape in columns first.."""
    places = np.zeros(sources.shape[0], np.int64)
    for i in range(sources.shape[0]):
        num_escapes = np.int64(sources[i, 3])
        if num_escapes:
            places[i] = np.searchsorted(carray(pointer(sources[i, 2]), (num_escapes,), np.uint32), np.uint32(first))
    return places


@inlined
def _around_zero(factors, p, centre):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The factors around zero, filled up to whole groups, and what makes up for the centre that symbols lack."""
    k, n = factors.shape
    centred = np.zeros((k, -(-n // GROUP) * GROUP), type(p))
    offsets = np.zeros(k, type(p))
    for j in range(k):
        total = np.int64(0)
        for i in range(n):
            factor = np.int64(factors[j, i])
            total += factor
            centred[j, i] = factor - np.int64(p) if factor > np.int64(p) // 2 else factor
        offsets[j] = np.int64(centre) * total % np.int64(p)
    return centred, offsets


@inlined
def _five(f, i):  # type: ignore[no-untyped-def]  # pragma: no cover
    return f[i], f[i + 1], f[i + 2], f[i + 3], f[i + 4]


@inlined
def _add_five(total, f, r, x, block):  # type: ignore[no-untyped-def]  # pragma: no cover
    total += f[0] * r[x]
    total += f[1] * r[block + x]
    total += f[2] * r[2 * block + x]
    total += f[3] * r[3 * block + x]
    return total + f[4] * r[4 * block + x]


@inlined
def _reduced(total, inverse, shift, p):  # type: ignore[no-untyped-def]  # pragma: no cover
    return np.uint16(total - np.floor(total * inverse + shift) * p)


@inlined
def _from_cache_line(buffer, size):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The part of a longer buffer that starts with a cache line: vectors across two lines would take twice as long."""
    first = -np.int64(buffer.ctypes.data) % CACHE_LINE // buffer.itemsize
    return buffer[first : first + size]


@inlined
def _pack(symbols, position, plane, escapes, count):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Symbols as bytes from `position` on; the positions of 256 go to `escapes`, as far as there is room, and are counted."""
    whole = symbols.size // STRIDE * STRIDE
    source, target = np.uint64(symbols.ctypes.data), np.uint64(plane.ctypes.data) + np.uint64(position)
    for start in range(0, whole, STRIDE):
        large = narrow(source + np.uint64(2 * start), target + np.uint64(start))
        while large:
            if count < escapes.size:
                escapes[count] = position + start + trailing_zeros(large)
            count += 1
            large &= large - np.uint64(1)
    for x in range(whole, symbols.size):
        plane[position + x] = np.uint8(symbols[x])
        if symbols[x] > 255:
            if count < escapes.size:
                escapes[count] = position + x
            count += 1
    return count


def _product_in_blocks(block: int, real: str, packs: bool) -> Callable[..., None]:
    """The product compiled for blocks of so many columns and p of this type, to words of 16 bits or packed into bytes."""
    word = "uint8" if packs else "uint16"

    @compiled(
        f"void(uint16[:, ::1], uint64[:, ::1], {real}, {real}, int64, int64, {word}[:, ::1], uint32[:, ::1], int64[::1])",
        fuse=True,
    )
    def product(  # type: ignore[no-untyped-def]  # pragma: no cover
        factors, sources, p, centre, first, last, out, escapes, counts
    ):
        """factors (k × n) times columns first..last of n payloads, to the same columns of out (k × d); see `_pack`."""
        centred, offsets = _around_zero(factors, p, centre)
        num_factors = centred.shape[1]
        zero, one = p - p, p / p
        inverse = one / p
        shift = inverse / (one + one)
        rows = _from_cache_line(np.zeros(num_factors * block + CACHE_LINE, type(p)), num_factors * block)
        sums = _from_cache_line(np.empty(block + CACHE_LINE, type(p)), block)
        residues = _from_cache_line(np.empty(block + CACHE_LINE, np.uint16), block)
        next_escape = _first_escapes(sources, first)
        for start in range(first, last, block):
            width = min(block, last - start)
            for i in range(sources.shape[0]):
                row = rows[i * block : (i + 1) * block]
                _load(sources[i], start, width, centre, row)
                if sources[i, 3]:
                    next_escape[i] = _load_escaped(sources[i], next_escape[i], start, width, centre, row)
            end = start + width
            for j in range(factors.shape[0]):
                target = out[j, start:end] if width == block and not packs else residues
                _fetch(out[j, end:].ctypes.data, out.itemsize * block)
                offset, f, r = offsets[j], _five(centred[j], 0), rows
                if num_factors == GROUP:
                    for x in range(block):
                        target[x] = _reduced(_add_five(offset, f, r, x, block), inverse, shift, p)
                elif num_factors == 2 * GROUP:
                    g, s = _five(centred[j], GROUP), rows[GROUP * block :]
                    for x in range(block):
                        total = _add_five(offset, f, r, x, block) + _add_five(zero, g, s, x, block)
                        target[x] = _reduced(total, inverse, shift, p)
                else:
                    for x in range(block):
                        sums[x] = _add_five(offset, f, r, x, block)
                    i = GROUP
                    while num_factors - i > 2 * GROUP:
                        f, g = _five(centred[j], i), _five(centred[j], i + GROUP)
                        r, s = rows[i * block :], rows[(i + GROUP) * block :]
                        for x in range(block):
                            sums[x] = _add_five(sums[x], f, r, x, block) + _add_five(zero, g, s, x, block)
                        i += 2 * GROUP
                    f, r = _five(centred[j], i), rows[i * block :]
                    if num_factors - i == 2 * GROUP:
                        g, s = _five(centred[j], i + GROUP), rows[(i + GROUP) * block :]
                        for x in range(block):
                            total = _add_five(sums[x], f, r, x, block) + _add_five(zero, g, s, x, block)
                            target[x] = _reduced(total, inverse, shift, p)
                    else:
                        for x in range(block):
                            target[x] = _reduced(_add_five(sums[x], f, r, x, block), inverse, shift, p)
                if packs:
                    counts[j] = _pack(residues[:width], start, out[j], escapes[j], counts[j])
                elif width < block:
                    out[j, start:end] = residues[:width]

    return product


_FEW = {packs: _product_in_blocks(FEW_ROWS, "float32", packs) for packs in (False, True)}
_MANY = {packs: _product_in_blocks(MANY_ROWS, "float32", packs) for packs in (False, True)}
_DOUBLES = {False: _product_in_blocks(DOUBLE_ROWS, "float64", False)}


class Product:
    """factors (k × n) times n payloads (d,) over GF(p), prepared for the compiled loops. Holds the payloads until done."""

    def __init__(self, factors: Symbols, payloads: Sequence[Payload], p: int, num_threads: int | None = None) -> None:
        """num_threads: see `threads.in_parts`. Raises ValueError unless there are payloads, of one length, and factors fit."""
        num_terms, d = len(payloads), len(payloads[0]) if payloads else 0
        fit = num_terms > 0 and factors.ndim == 2 and factors.shape[1] == num_terms
        if not fit or any(len(payload) != d for payload in payloads):
            lengths = sorted({len(payload) for payload in payloads})
            raise ValueError(f"factors {factors.shape} do not fit {num_terms} payloads of {lengths} symbols")
        wide = any(payload.plane.itemsize > 1 for payload in payloads)
        real = exact_type(p, num_terms, wide)
        centre = _centre(p, wide)
        self.p, self.d, self.k = p, d, factors.shape[0]
        self.packs = p <= 257 and real is np.float32 and not wide
        self._payloads = payloads
        self._num_threads = num_threads
        self._kernels = _DOUBLES if real is np.float64 else _FEW if num_terms <= 2 * GROUP else _MANY
        sources = np.array([payload.source for payload in payloads], dtype=np.uint64)
        self._operands = np.ascontiguousarray(factors, dtype=np.uint16), sources, real(p), real(centre)

    def symbols(self, out: NDArray[np.uint16] | None = None) -> NDArray[np.uint16]:
        """The product (k × d), in `out` if given: reusing a large array saves the system the work of giving out memory."""
        product = np.empty((self.k, self.d), dtype=np.uint16) if out is None else out
        nothing, counts = np.empty((self.k, 0), dtype=np.uint32), np.empty(0, dtype=np.int64)

        def fill(first: int, last: int) -> None:
            self._kernels[False](*self._operands, first, last, product, nothing, counts)

        in_parts(fill, self.d, self._num_threads)
        return product

    def packed(self) -> list[Payload]:
        """The product as k payloads, packed in one pass where there are bytes to pack into and float32 is exact."""
        if not self.packs:
            return [Payload.of(symbols, self.p) for symbols in self.symbols()]
        planes = np.empty((self.k, self.d), dtype=np.uint8)
        parts = in_parts(lambda first, last: self._pack_part(first, last, planes), self.d, self._num_threads)
        return [
            Payload(planes[j], parts[0][j] if len(parts) == 1 else np.concatenate([part[j] for part in parts]))
            for j in range(self.k)
        ]

    def _pack_part(self, first: int, last: int, planes: NDArray[np.uint8]) -> list[Positions]:
        """Fill columns first..last of the planes; returns the escapes of each."""
        capacity = (last - first) // 128 + 64  # about twice what random symbols need
        while True:
            escapes, counts = np.empty((self.k, capacity), dtype=np.uint32), np.zeros(self.k, dtype=np.int64)
            self._kernels[True](*self._operands, first, last, planes, escapes, counts)
            if counts.max() <= capacity:
                return [escapes[j, : counts[j]] for j in range(self.k)]
            capacity = int(counts.max())
