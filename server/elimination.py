"""Gaussian elimination over GF(p), equation by equation: the compiled steps of the online decoder, and their state.

The state is the reduced row echelon form R of the equations so far beside the matrix T that made it, R = T · (the
equations that were new), as rows [R_i | T_i] of float64 in the order in which they came. Sums of products stay far below
2^51, so that they and their remainders are exact (see `dncfl.common.kernels.exact_type`).
"""

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import compiled, inlined
from dncfl.common.field import PrimeField
from dncfl.common.payload import Symbols


@inlined
def _remainder(s, p):  # type: ignore[no-untyped-def]  # pragma: no cover
    return s - np.floor((s + 0.5) * (1.0 / p)) * p


@inlined
def _inverse(a, p):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The b with a·b = 1, by Euclid's algorithm."""
    r, next_r, t, next_t = np.int64(p), np.int64(a), np.int64(0), np.int64(1)
    while next_r:
        quotient = r // next_r
        r, next_r = next_r, r - quotient * next_r
        t, next_t = next_t, t - quotient * next_t
    return np.float64(t if t > 0 else t + np.int64(p))


@compiled(
    "int64(float64[:, ::1], int64[::1], int64, Array(uint16, 2, 'C', readonly=True), float64, boolean[::1], boolean[::1])"
)
def eliminate(rows, pivots, rank, equations, p, involved, new):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take equations (n × M) into rows (M × 2M) with their pivots (M); returns the rank, or -1 for a value of p or more.

    new (n) tells which were independent of all before them; once the rank is M, none is. involved (M) gets the unknowns
    that take part in any of them.
    """
    num_unknowns = rows.shape[0]
    for e in range(equations.shape[0]):
        for x in range(num_unknowns):
            if equations[e, x] >= p:
                return -1
    for e in range(equations.shape[0]):
        new[e] = False
        for x in range(num_unknowns):
            involved[x] |= equations[e, x] != 0
        if rank == num_unknowns:
            continue
        used = num_unknowns + rank
        row = rows[rank]
        row[:num_unknowns] = equations[e]
        row[num_unknowns:] = 0
        for i in range(rank):
            factor = np.float64(equations[e, pivots[i]])
            if factor:
                other = rows[i]
                for x in range(used):
                    row[x] -= factor * other[x]
        pivot = -1
        for x in range(used):
            row[x] = _remainder(row[x], p)
        for x in range(num_unknowns):
            if row[x]:
                pivot = x
                break
        if pivot < 0:
            continue
        row[used] = 1
        scale = _inverse(row[pivot], p)
        for x in range(used + 1):
            row[x] = _remainder(scale * row[x], p)
        for i in range(rank):
            factor = rows[i, pivot]
            if factor:
                other = rows[i]
                for x in range(used + 1):
                    other[x] = _remainder(other[x] - factor * row[x], p)
        pivots[rank] = pivot
        new[e] = True
        rank += 1
    return rank


@compiled("void(float64[:, ::1], int64[::1], int64, int64[::1])")
def find_determined(rows, pivots, rank, places):  # type: ignore[no-untyped-def]  # pragma: no cover
    """For each unknown z, the place of the row whose R_i is e_z, or -1: z is determined iff there is one."""
    num_unknowns = rows.shape[0]
    places[:] = -1
    for i in range(rank):
        others = 0
        for x in range(num_unknowns):
            others += rows[i, x] != 0
        if others == 1:
            places[pivots[i]] = i


class Echelon:
    """Equations over GF(p) in reduced row echelon form, and how each is made of those that were independent."""

    def __init__(self, num_unknowns: int, p: int) -> None:
        """No equations yet. Raises ValueError when p is not a prime below 2^16."""
        self._field = PrimeField(p)
        self._num_unknowns = num_unknowns
        self._rows = np.zeros((num_unknowns, 2 * num_unknowns))
        self._pivots = np.zeros(num_unknowns, dtype=np.int64)
        self._involved = np.zeros(num_unknowns, dtype=np.bool_)
        self.rank = 0

    @property
    def involved(self) -> tuple[int, ...]:
        """The unknowns that take part in some equation, new or not."""
        return tuple(np.flatnonzero(self._involved).tolist())

    def add(self, equations: Symbols) -> NDArray[np.bool_]:
        """Take the coefficients (n × num_unknowns) of equations; tells which (n) were independent of all before them.

        Raises ValueError for coefficients of another shape, or outside 0..p-1.
        """
        rows = np.ascontiguousarray(equations, dtype=np.uint16)
        new = np.empty(len(rows), dtype=np.bool_)
        rank = -1
        if rows.shape == (len(rows), self._num_unknowns):
            rank = eliminate(self._rows, self._pivots, self.rank, rows, float(self._field.p), self._involved, new)
        if rank < 0:
            raise ValueError(f"coefficients must be {self._num_unknowns} values in 0..{self._field.p - 1}")
        self.rank = rank
        return new

    def determined(self) -> dict[int, Symbols]:
        """For each unknown that the equations fix, the factors (rank,) by which the independent ones give it."""
        places = np.empty(self._num_unknowns, dtype=np.int64)
        find_determined(self._rows, self._pivots, self.rank, places)
        transforms = self._transforms()
        return {z: transforms[place] for z, place in enumerate(places.tolist()) if place >= 0}

    def coordinates(self, equations: Symbols) -> Symbols:
        """The factors (n × rank) by which the independent equations give others (n × num_unknowns) in their row space."""
        return self._field.matmul(equations[:, self._pivots[: self.rank]], self._transforms())

    def _transforms(self) -> Symbols:
        """T (rank × rank)."""
        return self._rows[: self.rank, self._num_unknowns : self._num_unknowns + self.rank].astype(np.uint16)
