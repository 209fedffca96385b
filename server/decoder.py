"""Progressive Gaussian elimination over GF(p): equations in as they arrive, messages out once they are determined.

The decoder keeps the reduced row echelon form R of the equations so far, and with it the matrix T that made it:
R = T · (the equations that were new). Payloads are stored untouched and meet arithmetic only when messages are asked
for; a message that arrived by itself is given back as it came.
"""

import numpy as np
from numpy.typing import NDArray

from dncfl.common.field import PrimeField, Symbols, determined


class Decoder:
    """The equations of one round about the messages of num_clients nodes."""

    def __init__(self, num_clients: int, p: int) -> None:
        """An empty system over GF(p). Raises ValueError when p is not a prime below 2^16."""
        self._field = PrimeField(p)
        self._num_clients = num_clients
        # Row i holds [R_i | T_i]; rows stay unsorted, each with the column of its leading one in _pivots.
        self._rows = np.zeros((0, 2 * num_clients), dtype=np.int64)
        self._pivots: list[int] = []
        self._payloads: list[Symbols] = []
        self._involved = np.zeros(num_clients, dtype=bool)

    @property
    def rank(self) -> int:
        """How many independent equations have arrived."""
        return len(self._pivots)

    @property
    def involved(self) -> tuple[int, ...]:
        """The messages that take part in some arrived equation, new or not."""
        return tuple(int(z) for z in np.flatnonzero(self._involved))

    def add(self, coefficients: Symbols, payload: Symbols) -> bool:
        """Take the equation coefficients (M,) · U = payload (n,); True when it was independent of all before it.

        Raises ValueError for coefficients or payload of another length, or coefficients outside 0..p-1.
        """
        coefficients = np.asarray(coefficients, dtype=np.int64)
        p = self._field.p
        if coefficients.shape != (self._num_clients,) or coefficients.min() < 0 or coefficients.max() >= p:
            raise ValueError(f"coefficients must be {self._num_clients} values in 0..{p - 1}")
        if self._payloads and payload.shape != self._payloads[0].shape:
            raise ValueError(f"the payload has shape {payload.shape}: must be {self._payloads[0].shape} as before")
        self._involved |= coefficients != 0
        row = np.zeros(2 * self._num_clients, dtype=np.int64)
        row[: self._num_clients] = coefficients
        row = (row - row[self._pivots] @ self._rows) % p
        nonzero = np.flatnonzero(row[: self._num_clients])
        if nonzero.size == 0:
            return False
        pivot = int(nonzero[0])
        row[self._num_clients + len(self._payloads)] = 1
        row = row * self._field.inverse(int(row[pivot])) % p
        self._rows = np.vstack([(self._rows - np.outer(self._rows[:, pivot], row)) % p, row])
        self._pivots.append(pivot)
        self._payloads.append(payload)
        return True

    def recoverable(self) -> tuple[int, ...]:
        """The messages z that the equations so far determine: e_z lies in their row space."""
        return tuple(sorted(determined(self._rows[:, : self._num_clients])))

    def messages(self) -> dict[int, Symbols]:
        """The recoverable messages, each (n,), by the number of its node."""
        recovered = {z: self._transform(z) for z in self.recoverable()}
        alone = {z: t for z, t in recovered.items() if np.count_nonzero(t) == 1 and t.max() == 1}
        mixed = {z: t for z, t in recovered.items() if z not in alone}
        result = {z: self._payloads[int(np.argmax(t))] for z, t in alone.items()}
        if mixed:
            used = np.flatnonzero(np.any(list(mixed.values()), axis=0))
            factors = np.array([t[used] for t in mixed.values()], dtype=np.uint16)
            solved = self._field.combine(factors, [self._payloads[i] for i in used])
            result |= dict(zip(mixed, solved, strict=True))
        return dict(sorted(result.items()))

    def _transform(self, z: int) -> NDArray[np.int64]:
        """The row of T that gives message z."""
        return self._rows[self._pivots.index(z), self._num_clients : self._num_clients + len(self._payloads)]
