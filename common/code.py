"""The diversity network code (DNC): which combination of the messages each node relays in each slot.

The generator is A = [I_M | A_0 | … | A_{M-1}] (eq. DNC code of the letter), systematic and MDS: every M columns are
linearly independent. The part behind the identity is a Cauchy matrix with x_i = i, y_j = M + j and entries
1/(x_i - y_j), for which p >= M² is enough.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dncfl.common.field import PrimeField
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload, Symbols
from dncfl.common.primes import MIN_FIELD


class DiversityNetworkCode(NetworkCode):
    """The code of M clients, each with one slot for its own message and `relay_slots` slots for codewords."""

    def __init__(self, num_clients: int, relay_slots: int | None = None, min_field: int = MIN_FIELD) -> None:
        """See `NetworkCode`; with fewer than M - 1 relay slots, each block keeps its first columns."""
        super().__init__(num_clients, relay_slots, min_field)
        self._field = PrimeField(self.p)
        blocks = _cauchy(num_clients, self._field).reshape(num_clients, num_clients, num_clients - 1)
        self._blocks = blocks[:, :, : self.relay_slots].transpose(1, 0, 2).copy()

    @property
    def generator(self) -> Symbols:
        """A, of shape M × (M + M·relay_slots)."""
        identity = np.eye(self.num_clients, dtype=np.uint16)
        generator: Symbols = np.hstack([identity, *self._blocks])
        return generator

    def block(self, client: int) -> Symbols:
        """A_m of one client: M × relay_slots, a column per relay slot."""
        block: Symbols = self._blocks[client]
        return block

    def coefficients(self, sender: int, slot: int, messages: Collection[int]) -> Symbols:
        """The M coefficients of what `sender` sends in `slot` when it combines `messages`.

        Slot 1 carries the sender's own message; slots 2..relay_slots+1 carry a column of its block in which the rows of
        all other messages are zero (the sender's Ã_m).
        """
        row = np.zeros(self.num_clients, dtype=np.uint16)
        if slot == 1:
            row[sender] = 1
        else:
            known = list(messages)
            row[known] = self._blocks[sender, known, slot - 2]
        return row

    def codewords(self, sender: int, messages: Mapping[int, Payload], slots: Sequence[int] | None = None) -> list[Payload]:
        """C_m = U·Ã_m: what `sender` relays of the messages that it holds, a codeword per slot, all slots unless given."""
        held = list(messages)
        columns = [slot - 2 for slot in (self.all_relay_slots if slots is None else slots)]
        return self._field.combine(self._blocks[sender][np.ix_(held, columns)].T, [messages[z] for z in held])


def _cauchy(num_clients: int, field: PrimeField) -> Symbols:
    """The M × M(M-1) Cauchy matrix with entries 1/(i - (M + j)) mod p."""
    differences = np.arange(num_clients)[:, None] - num_clients - np.arange(num_clients * (num_clients - 1))[None, :]
    inverses = np.array([0] + [field.inverse(-distance) for distance in range(1, num_clients**2)], dtype=np.uint16)
    entries: Symbols = inverses[-differences]
    return entries
