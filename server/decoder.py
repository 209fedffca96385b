"""Progressive Gaussian elimination over GF(p): equations in as they arrive, messages out once they are determined.

Payloads are kept as they came and meet arithmetic only when messages are asked for; a message that arrived by itself is
given back as it is, and only the equations that a missing message needs are read.
"""

import numpy as np

from dncfl.common.field import PrimeField
from dncfl.common.payload import Payload, Symbols
from dncfl.server.elimination import eliminate, find_determined


class Decoder:
    """The equations of one round about the messages of num_clients nodes."""

    def __init__(self, num_clients: int, p: int) -> None:
        """An empty system over GF(p). Raises ValueError when p is not a prime below 2^16."""
        self._field = PrimeField(p)
        self._num_clients = num_clients
        self._rows = np.zeros((num_clients, 2 * num_clients))
        self._pivots = np.zeros(num_clients, dtype=np.int64)
        self._payloads: list[Payload] = []
        self._involved = np.zeros(num_clients, dtype=bool)

    @property
    def rank(self) -> int:
        """How many independent equations have arrived."""
        return len(self._payloads)

    @property
    def involved(self) -> tuple[int, ...]:
        """The messages that take part in some arrived equation, new or not."""
        return tuple(np.flatnonzero(self._involved).tolist())

    def add(self, coefficients: Symbols, payload: Payload) -> bool:
        """Take the equation coefficients (M,) · U = payload; True when it was independent of all before it.

        Raises ValueError for coefficients or payload of another length, or coefficients outside 0..p-1.
        """
        if self._payloads and len(payload) != len(self._payloads[0]):
            raise ValueError(f"the payload has {len(payload)} symbols: must be {len(self._payloads[0])} as before")
        equation = np.ascontiguousarray(coefficients, dtype=np.uint16)[None]
        new = np.empty(1, dtype=np.bool_)
        p, size = self._field.p, self._num_clients
        if (
            equation.shape != (1, size)
            or eliminate(self._rows, self._pivots, self.rank, equation, float(p), self._involved, new) < 0
        ):
            raise ValueError(f"coefficients must be {size} values in 0..{p - 1}")
        if new[0]:
            self._payloads.append(payload)
        return bool(new[0])

    def recoverable(self) -> tuple[int, ...]:
        """The messages z that the equations so far determine: e_z lies in their row space."""
        return tuple(self._places())

    def messages(self) -> dict[int, Payload]:
        """The recoverable messages by the number of their node."""
        result: dict[int, Payload] = {}
        mixed = {z: self._rows[place, self._num_clients :] for z, place in self._places().items()}
        for z, transform in list(mixed.items()):
            if np.count_nonzero(transform) == 1 and transform.max() == 1:
                result[z] = self._payloads[int(np.argmax(transform))]
                del mixed[z]
        if mixed:
            transforms = np.array(list(mixed.values()), dtype=np.uint16)
            used = np.flatnonzero(transforms.any(axis=0))
            solved = self._field.combine(transforms[:, used], [self._payloads[i] for i in used])
            result |= dict(zip(mixed, solved, strict=True))
        return dict(sorted(result.items()))

    def _places(self) -> dict[int, int]:
        """For each recoverable message the row that gives it."""
        places = np.empty(self._num_clients, dtype=np.int64)
        find_determined(self._rows, self._pivots, self.rank, places)
        return {z: place for z, place in enumerate(places.tolist()) if place >= 0}
