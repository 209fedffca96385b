"""The compiled product over GF(p): many output symbols per instruction, one pass over memory, no copies of payloads.

Blocks of columns are brought into the first-level cache as floating-point residues around zero, multiplied there by
factors around zero, and reduced before they leave. `exact_type` tells in which type this is exact. Payloads are read
where they lie, by their addresses: arrays of many different payloads would cost the vector instructions.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir  # what numba builds its code with; needed for the address of a payload
from numba import types
from numba.core import config
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from dncfl.common.compiled import compiled, inlined
from dncfl.common.payload import Payload, Positions, Symbols

T = TypeVar("T")

_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
_carray: Callable[..., Any] = carray

BLOCK = 512
"""Columns per block: ten float32 rows of it are 20 kB."""

PIECE = 2048
"""Columns whose symbols wait in the second-level cache until they are packed into bytes."""

STRIDE = 64
"""Symbols that are looked at together for one that does not fit a byte."""

GROUP = 5
"""Terms that are added up before a sum is stored; rows are filled up to whole groups with zeros."""

COLUMNS_PER_THREAD = 2**18
"""Fewer columns are not worth a thread of their own."""


def exact_type(p: int, num_terms: int, wide: bool) -> type[np.float32] | type[np.float64]:
    """The narrowest type in which a product of num_terms <= 255 terms is exact; `wide` when a payload holds 16-bit words.

    A sum s and s + 1/2 must be exact, and ⌊(s + 1/2)/p⌋ must come out right though 1/p and the product are rounded:
    (s + 1/2)/p lies at least 1/(2p) from a whole number, so |s| < 2^22 suffices in float32, with a little to spare. In
    float64 every p < 2^16 stays far below its limit of 2^51.
    """
    largest_sum = num_terms * (p // 2) * _centre(p, wide) + p
    return np.float32 if largest_sum < 2**22 - 2**12 else np.float64


def _centre(p: int, wide: bool) -> int:
    """What is taken off each symbol, so that none is further from zero than this."""
    return p // 2 if wide else 128


@_intrinsic
def _pointer(_, address):  # type: ignore[no-untyped-def]  # pragma: no cover
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


@inlined
def _load(source, start, width, centre, row):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Columns start.. of one payload, around zero."""
    plane, itemsize = source[0], source[1]
    if itemsize == 1:
        symbols = _carray(_pointer(plane + np.uint64(start)), (BLOCK,), np.uint8)
        for x in range(width):
            row[x] = symbols[x] - centre
    else:
        words = _carray(_pointer(plane + np.uint64(2 * start)), (BLOCK,), np.uint16)
        for x in range(width):
            row[x] = words[x] - centre


@inlined
def _load_escaped(source, first_escape, start, width, centre, row):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The symbols 256 in these columns; returns the first escape behind them."""
    num_escapes = np.int64(source[3])
    escapes = _carray(_pointer(source[2]), (num_escapes,), np.uint32)
    i = first_escape
    while i < num_escapes and escapes[i] < start + width:
        row[escapes[i] - start] = 256 - centre
        i += 1
    return i


@inlined
def _five(f, i):  # type: ignore[no-untyped-def]  # pragma: no cover
    return f[i], f[i + 1], f[i + 2], f[i + 3], f[i + 4]


@inlined
def _sum_of_five(f, r, x):  # type: ignore[no-untyped-def]  # pragma: no cover
    return f[0] * r[x] + f[1] * r[BLOCK + x] + f[2] * r[2 * BLOCK + x] + f[3] * r[3 * BLOCK + x] + f[4] * r[4 * BLOCK + x]


@compiled(
    *(
        f"void({real}[:, ::1], {real}[::1], uint64[:, ::1], {real}, {real}, int64, int64, uint16[:, ::1], int64)"
        for real in ("float32", "float64")
    )
)
def _product(factors, offsets, sources, p, centre, first, last, out, out_first):  # type: ignore[no-untyped-def]  # pragma: no cover
    num_terms = sources.shape[0]
    num_factors = factors.shape[1]
    one = p / p
    half = one / (one + one)
    inverse = one / p
    rows = np.zeros(num_factors * BLOCK, factors.dtype)
    sums = np.empty(BLOCK, factors.dtype)
    block = np.empty(BLOCK, np.uint16)
    next_escape = np.zeros(num_terms, np.int64)
    for i in range(num_terms):
        num_escapes = np.int64(sources[i, 3])
        if num_escapes:
            next_escape[i] = np.searchsorted(_carray(_pointer(sources[i, 2]), (num_escapes,), np.uint32), np.uint32(first))
    for start in range(first, last, BLOCK):
        width = min(BLOCK, last - start)
        for i in range(num_terms):
            row = rows[i * BLOCK : (i + 1) * BLOCK]
            _load(sources[i], start, width, centre, row)
            if sources[i, 3]:
                next_escape[i] = _load_escaped(sources[i], next_escape[i], start, width, centre, row)
        for j in range(factors.shape[0]):
            sums[:] = offsets[j]
            i = 0
            while num_factors - i > 2 * GROUP:
                f, g = _five(factors[j], i), _five(factors[j], i + GROUP)
                r, s = rows[i * BLOCK :], rows[(i + GROUP) * BLOCK :]
                for x in range(BLOCK):
                    sums[x] += _sum_of_five(f, r, x) + _sum_of_five(g, s, x)
                i += 2 * GROUP
            target = out[j, out_first + start - first : out_first + start - first + width] if width == BLOCK else block
            f, r = _five(factors[j], i), rows[i * BLOCK :]
            if num_factors - i == 2 * GROUP:
                g, s = _five(factors[j], i + GROUP), rows[(i + GROUP) * BLOCK :]
                for x in range(BLOCK):
                    total = sums[x] + (_sum_of_five(f, r, x) + _sum_of_five(g, s, x))
                    target[x] = np.uint16(total - np.floor((total + half) * inverse) * p)
            else:
                for x in range(BLOCK):
                    total = sums[x] + _sum_of_five(f, r, x)
                    target[x] = np.uint16(total - np.floor((total + half) * inverse) * p)
            if width < BLOCK:
                out[j, out_first + start - first : out_first + last - first] = block[:width]


@inlined
def _pack(symbols, position, plane, escapes, count):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Symbols as bytes from `position` on; the positions of 256 go to `escapes`, as far as there is room, and are counted."""
    whole = symbols.size // STRIDE * STRIDE
    for start in range(0, whole, STRIDE):
        part, target = symbols[start : start + STRIDE], plane[position + start : position + start + STRIDE]
        high = np.uint16(0)
        for x in range(STRIDE):
            target[x] = np.uint8(part[x])
            high |= part[x]
        if high > 255:
            for x in range(STRIDE):
                if part[x] > 255:
                    if count < escapes.size:
                        escapes[count] = position + start + x
                    count += 1
    for x in range(whole, symbols.size):
        plane[position + x] = np.uint8(symbols[x])
        if symbols[x] > 255:
            if count < escapes.size:
                escapes[count] = position + x
            count += 1
    return count


@compiled(
    *(
        f"void({real}[:, ::1], {real}[::1], uint64[:, ::1], {real}, {real}, int64, int64,"
        " uint8[:, ::1], uint32[:, ::1], int64[::1])"
        for real in ("float32", "float64")
    )
)
def _packed_product(  # type: ignore[no-untyped-def]  # pragma: no cover
    factors, offsets, sources, p, centre, first, last, planes, escapes, counts
):
    scratch = np.empty((factors.shape[0], PIECE), np.uint16)
    counts[:] = 0
    for start in range(first, last, PIECE):
        width = min(PIECE, last - start)
        _product(factors, offsets, sources, p, centre, start, start + width, scratch, 0)
        for j in range(factors.shape[0]):
            counts[j] = _pack(scratch[j, :width], start, planes[j], escapes[j], counts[j])


class Product:
    """factors (k × n) times n payloads (d,) over GF(p), prepared for the compiled loops. Holds the payloads until done."""

    def __init__(self, factors: Symbols, payloads: Sequence[Payload], p: int) -> None:
        """Raises ValueError unless there is one factor a payload and all payloads are of one length."""
        num_terms, d = len(payloads), len(payloads[0]) if payloads else 0
        if factors.ndim != 2 or factors.shape[1] != num_terms or any(len(payload) != d for payload in payloads):
            lengths = sorted({len(payload) for payload in payloads})
            raise ValueError(f"factors {factors.shape} do not fit {num_terms} payloads of {lengths} symbols")
        wide = any(payload.plane.itemsize > 1 for payload in payloads)
        real = exact_type(p, num_terms, wide)
        centre = _centre(p, wide)
        around_zero = factors.astype(np.int64)
        around_zero[around_zero > p // 2] -= p
        offsets = centre * around_zero.sum(axis=1) % p
        self.d, self.k = d, factors.shape[0]
        self._payloads = payloads
        padded = np.zeros((self.k, -(-num_terms // GROUP) * GROUP), dtype=real)
        padded[:, :num_terms] = around_zero
        sources = np.array([payload.source for payload in payloads], dtype=np.uint64)
        self._operands = padded, offsets.astype(real), sources, real(p), real(centre)

    def symbols(self, out: NDArray[np.uint16] | None = None) -> NDArray[np.uint16]:
        """The product (k × d), in `out` if given: reusing a large array saves the system the work of giving out memory."""
        product = np.empty((self.k, self.d), dtype=np.uint16) if out is None else out
        in_parts(lambda first, last: _product(*self._operands, first, last, product, first), self.d)
        return product

    def packed(self) -> list[Payload]:
        """The product as k payloads; only for p <= 257."""
        planes = np.empty((self.k, self.d), dtype=np.uint8)
        parts = in_parts(lambda first, last: self._pack_part(first, last, planes), self.d)
        return [
            Payload(planes[j], parts[0][j] if len(parts) == 1 else np.concatenate([part[j] for part in parts]))
            for j in range(self.k)
        ]

    def _pack_part(self, first: int, last: int, planes: NDArray[np.uint8]) -> list[Positions]:
        """Fill columns first..last of the planes; returns the escapes of each."""
        capacity = (last - first) // 128 + 64  # about twice what random symbols need
        counts = np.empty(self.k, dtype=np.int64)
        while True:
            escapes = np.empty((self.k, capacity), dtype=np.uint32)
            _packed_product(*self._operands, first, last, planes, escapes, counts)
            if counts.max() <= capacity:
                return [escapes[j, : counts[j]] for j in range(self.k)]
            capacity = int(counts.max())


def in_parts(work: Callable[[int, int], T], d: int) -> list[T]:
    """The results of work(first, last) on parts of d columns, on as many threads as numba is set to and d is worth."""
    num_threads: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # it is set when numba is imported
    num_parts = max(1, min(num_threads, d // COLUMNS_PER_THREAD))
    edges = [d * i // num_parts for i in range(num_parts + 1)]
    if num_parts == 1:
        return [work(0, d)]
    with ThreadPoolExecutor(num_parts) as threads:
        return list(threads.map(work, edges[:-1], edges[1:]))
