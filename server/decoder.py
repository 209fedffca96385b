"""Progressive decoding over GF(p): equations in as they arrive, messages out once they are determined.

Payloads are kept as they came and meet arithmetic only when messages are asked for; a message that arrived by itself is
given back as it is, and only the equations that a missing message needs are read. Equations that add nothing are kept,
too, for `dncfl.server.verification`.
"""

from dataclasses import dataclass, field

import numpy as np

from dncfl.common.field import PrimeField
from dncfl.common.payload import Payload, Symbols
from dncfl.server.elimination import Echelon


@dataclass(frozen=True, eq=False)
class Equation:
    """What `sender` sent in a slot of an attempt: coefficients (M,) · messages = payload (n,).

    Slot 1 carries the sender's own message, with the unit vector of the sender as coefficients; later slots carry codewords.
    """

    sender: int
    slot: int
    attempt: int
    coefficients: Symbols = field(repr=False)
    payload: Payload = field(repr=False)


class Decoder:
    """The equations of one round about the messages of num_clients nodes."""

    def __init__(self, num_clients: int, p: int) -> None:
        """An empty system over GF(p). Raises ValueError when p is not a prime below 2^16."""
        self._field = PrimeField(p)
        self._echelon = Echelon(num_clients, p)
        self._equations: list[Equation] = []
        self._independent: list[Payload] = []

    @property
    def rank(self) -> int:
        """How many independent equations have arrived."""
        return self._echelon.rank

    @property
    def involved(self) -> tuple[int, ...]:
        """The messages that take part in some arrived equation, new or not."""
        return self._echelon.involved

    @property
    def equations(self) -> tuple[Equation, ...]:
        """All equations in order of arrival, those too that were not independent."""
        return tuple(self._equations)

    def add(self, equation: Equation) -> bool:
        """Take an equation; True when it was independent of all before it.

        Raises ValueError for coefficients or payload of another length, or coefficients outside 0..p-1.
        """
        payload = equation.payload
        if self._equations and len(payload) != len(self._equations[0].payload):
            raise ValueError(f"the payload has {len(payload)} symbols: must be {len(self._equations[0].payload)} as before")
        new = bool(self._echelon.add(equation.coefficients[None])[0])
        self._equations.append(equation)
        if new:
            self._independent.append(payload)
        return new

    def recoverable(self) -> tuple[int, ...]:
        """The messages z that the equations so far determine: e_z lies in their row space."""
        return tuple(self._echelon.determined())

    def messages(self) -> dict[int, Payload]:
        """The recoverable messages by the number of their node."""
        result: dict[int, Payload] = {}
        mixed = self._echelon.determined()
        for z, factors in list(mixed.items()):
            if np.count_nonzero(factors) == 1 and factors.max() == 1:
                result[z] = self._independent[int(np.argmax(factors))]
                del mixed[z]
        if mixed:
            transforms = np.array(list(mixed.values()))
            used = np.flatnonzero(transforms.any(axis=0))
            solved = self._field.combine(transforms[:, used], [self._independent[i] for i in used])
            result |= dict(zip(mixed, solved, strict=True))
        return dict(sorted(result.items()))
