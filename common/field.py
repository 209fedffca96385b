"""Arithmetic in GF(p): exact matrix products and row reduction.

`PrimeField.combine` is what codewords and messages are made by: the compiled product of `dncfl.common.kernels`.
`PrimeField.matmul` is the same in plain numpy, to be checked against and compared with.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dncfl.common.kernels import Product
from dncfl.common.payload import Payload, Symbols
from dncfl.common.primes import require_prime

Floats = TypeVar("Floats", NDArray[np.float32], NDArray[np.float64])

BLOCK = 4096
"""Columns per step of a product in numpy: the operands of one step stay in the processor's cache."""


class PrimeField:
    """GF(p) for a prime p < 2^16."""

    def __init__(self, p: int) -> None:
        """Raises ValueError when p is not a prime between 2 and 65,521."""
        require_prime(p)
        self.p = p

    def inverse(self, a: int) -> int:
        """The b with a·b = 1. Raises ZeroDivisionError for a = 0 mod p."""
        if a % self.p == 0:
            raise ZeroDivisionError(f"0 has no inverse in GF({self.p})")
        return pow(a, -1, self.p)

    def combine(self, factors: Symbols, payloads: Sequence[Payload]) -> list[Payload]:
        """Σ_i factors[:, i]·payloads[i]: k combinations of n payloads of d symbols by factors (k × n).

        Raises ValueError unless there is one factor a payload and all payloads are of one length.
        """
        return Product(factors, payloads, self.p).packed()

    def matmul(self, a: Symbols, b: Symbols) -> Symbols:
        """The product of a (k × n) and b (n × d) over the field: k × d.

        Every partial sum is at most (p-1)²·n. The product runs in the smallest floating-point type that holds this
        bound exactly, with p to spare for the reduction: float32 below 2^24, else float64 below 2^53 (enough for every
        p < 2^16 while n < 2^21). Raises ValueError beyond that.
        """
        n = a.shape[1]
        bound = (self.p - 1) ** 2 * n + self.p
        if bound < 2**24:
            return self._matmul_in_floats(a.astype(np.float32), b)
        if bound < 2**53:
            return self._matmul_in_floats(a.astype(np.float64), b)
        raise ValueError(f"a product over {n} terms in GF({self.p}) is not exact in float64")

    def _matmul_in_floats(self, a: Floats, b: Symbols) -> Symbols:
        product = np.empty((a.shape[0], b.shape[1]), dtype=np.uint16)
        for start in range(0, b.shape[1], BLOCK):
            columns = slice(start, start + BLOCK)
            sums = product_of_floats(a, b[:, columns].astype(a.dtype))
            product[:, columns] = self._reduce(sums)
        return product

    def _reduce(self, sums: Floats) -> Floats:
        """sums mod p, in place. The estimated quotient is off by at most one, which the two corrections mend."""
        p = sums.dtype.type(self.p)
        sums -= np.floor(sums * (1 / p)) * p
        np.add(sums, p, out=sums, where=sums < 0)
        np.subtract(sums, p, out=sums, where=sums >= p)
        return sums

    def row_reduce(self, matrix: Symbols) -> tuple[Symbols, tuple[int, ...]]:
        """The reduced row echelon form of matrix (n × m) without its zero rows (rank × m), and its pivot columns."""
        rows = matrix.astype(np.int64)
        pivots: list[int] = []
        for column in range(rows.shape[1]):
            top = len(pivots)
            candidates = np.flatnonzero(rows[top:, column])
            if candidates.size == 0:
                continue
            rows[[top, top + candidates[0]]] = rows[[top + candidates[0], top]]
            rows[top] = rows[top] * self.inverse(int(rows[top, column])) % self.p
            others = np.arange(len(rows)) != top
            rows[others] = (rows[others] - np.outer(rows[others, column], rows[top])) % self.p
            pivots.append(column)
        return rows[: len(pivots)].astype(np.uint16), tuple(pivots)


def product_of_floats(a: Floats, b: Floats) -> Floats:
    """a (k × n) times b (n × d) of finite numbers, without BLAS's occasional warning of invalid ones (numpy issue 24067)."""
    with np.errstate(invalid="ignore"):
        return a @ b


def determined(reduced: NDArray[np.integer]) -> tuple[int, ...]:
    """The unknowns that a reduced row echelon form (rank × m) fixes: those of its rows with a single nonzero.

    Unknown z is determined iff e_z lies in the row space of the equations.
    """
    single = reduced[np.count_nonzero(reduced, axis=1) == 1]
    return tuple(int(z) for z in np.argmax(single != 0, axis=1))
