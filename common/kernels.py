"""The compiled product over GF(p): many output symbols per instruction, one pass over memory.

Blocks of columns are brought into the first-level cache as float32 residues around zero, -p/2..p/2, multiplied there, and
reduced before they leave. This is exact as long as every partial sum stays below 2^24, see `fits`. Compiled once per
machine (the result is cached on disk) when this module is imported, so never in the middle of a slot.
"""

from collections.abc import Callable

import numpy as np
from numba import njit  # compiles these loops to vector instructions; galois brings it along
from numpy.typing import NDArray

BLOCK = 512
"""Columns per block: ten float32 rows of it are 20 kB."""


def fits(p: int, num_terms: int) -> bool:
    """Whether sums of num_terms products of centred residues, and their reduction, are exact in float32."""
    return (p // 2) ** 2 * num_terms + p < 2**24


@njit(inline="always")
def _add_ten(sums, factors, i, rows, width):  # type: ignore[no-untyped-def]  # pragma: no cover
    f0, f1, f2, f3, f4 = factors[i], factors[i + 1], factors[i + 2], factors[i + 3], factors[i + 4]
    f5, f6, f7, f8, f9 = factors[i + 5], factors[i + 6], factors[i + 7], factors[i + 8], factors[i + 9]
    r0, r1, r2, r3, r4 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3], rows[i + 4]
    r5, r6, r7, r8, r9 = rows[i + 5], rows[i + 6], rows[i + 7], rows[i + 8], rows[i + 9]
    for x in range(width):
        first = f0 * r0[x] + f1 * r1[x] + f2 * r2[x] + f3 * r3[x] + f4 * r4[x]
        second = f5 * r5[x] + f6 * r6[x] + f7 * r7[x] + f8 * r8[x] + f9 * r9[x]
        sums[x] += first + second


@njit(inline="always")
def _add_five(sums, factors, i, rows, width):  # type: ignore[no-untyped-def]  # pragma: no cover
    f0, f1, f2, f3, f4 = factors[i], factors[i + 1], factors[i + 2], factors[i + 3], factors[i + 4]
    r0, r1, r2, r3, r4 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3], rows[i + 4]
    for x in range(width):
        sums[x] += f0 * r0[x] + f1 * r1[x] + f2 * r2[x] + f3 * r3[x] + f4 * r4[x]


@njit(inline="always")
def _add_one(sums, factors, i, rows, width):  # type: ignore[no-untyped-def]  # pragma: no cover
    factor, row = factors[i], rows[i]
    for x in range(width):
        sums[x] += factor * row[x]


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Compile now, for one signature; from the cache where there is a place for one."""
    signature = "void(float32[:, ::1], uint16[:, ::1], int64, uint16[:, ::1], int64)"
    try:
        product: Callable[..., None] = njit(signature, cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # numba's word for a system where no folder for caches can be written
        product = njit(signature, nogil=True, error_model="numpy")(function)
    return product


@_compiled
def _product(factors, symbols, p, out, first):  # type: ignore[no-untyped-def]  # pragma: no cover
    num_terms, num_columns = symbols.shape
    modulus = np.float32(p)
    inverse = np.float32(1.0) / modulus
    half = np.float32(p // 2)
    rows = np.empty((num_terms, BLOCK), np.float32)
    sums = np.empty(BLOCK, np.float32)
    for start in range(0, num_columns, BLOCK):
        width = min(BLOCK, num_columns - start)
        for i in range(num_terms):
            source = symbols[i, start : start + width]
            row = rows[i]
            for x in range(width):
                value = np.float32(source[x])
                row[x] = value - modulus if value > half else value
        for j in range(factors.shape[0]):
            sums[:] = np.float32(0)
            i = 0
            while i + 10 <= num_terms:
                _add_ten(sums, factors[j], i, rows, width)
                i += 10
            while i + 5 <= num_terms:
                _add_five(sums, factors[j], i, rows, width)
                i += 5
            while i < num_terms:
                _add_one(sums, factors[j], i, rows, width)
                i += 1
            target = out[j, first + start : first + start + width]
            for x in range(width):
                # the quotient is off by at most one either way, which the two corrections mend
                rest = sums[x] - np.floor(sums[x] * inverse) * modulus
                rest = rest + modulus if rest < 0 else rest
                target[x] = np.uint16(rest - modulus if rest >= modulus else rest)


def product(factors: NDArray[np.uint16], symbols: NDArray[np.uint16], p: int, out: NDArray[np.uint16], first: int) -> None:
    """Write factors (k × n) times symbols (n × d), mod p, to d columns of out (k × …) from `first` on.

    All are whole arrays in C order: slices would cost the vector instructions. Only for sizes for which `fits` holds.

    It runs without Python's lock, so that the event loop goes on beside it.
    """
    centred = factors.astype(np.float32, order="C")
    centred[factors > p // 2] -= p
    _product(centred, np.ascontiguousarray(symbols), p, out, first)
