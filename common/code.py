"""The diversity network code (DNC): which combination of the messages each node relays in each slot.

The generator is A = [I_M | A_0 | … | A_{M-1}] (eq. DNC code of the letter), systematic and MDS: every M columns are
linearly independent. The part behind the identity is a Cauchy matrix with x_i = i, y_j = M + j and entries
1/(x_i - y_j), for which p >= M² is enough.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dncfl.common.field import PrimeField, smallest_prime
from dncfl.common.payload import Payload, Symbols

MIN_FIELD = 257
"""Every byte is a symbol, so that side information needs no conversion."""


class DiversityNetworkCode:
    """The code of M clients, each with one slot for its own message and `relay_slots` slots for codewords."""

    def __init__(self, num_clients: int, relay_slots: int | None = None, min_field: int = MIN_FIELD) -> None:
        """A code over the smallest GF(p) with p >= max(M², min_field).

        `relay_slots` is M - 1 unless given; with fewer, each block keeps its first columns.
        Raises ValueError for M < 2 or relay_slots outside 0..M-1.
        """
        if num_clients < 2:
            raise ValueError(f"num_clients = {num_clients}: a cooperative code needs at least 2 clients")
        if relay_slots is None:
            relay_slots = num_clients - 1
        if not 0 <= relay_slots <= num_clients - 1:
            raise ValueError(f"relay_slots = {relay_slots}: must lie in 0..{num_clients - 1} for {num_clients} clients")
        self.num_clients = num_clients
        self.relay_slots = relay_slots
        self.p = smallest_prime(max(num_clients**2, min_field))
        self._field = PrimeField(self.p)
        blocks = _cauchy(num_clients, self._field).reshape(num_clients, num_clients, num_clients - 1)
        self._blocks = blocks[:, :, :relay_slots].transpose(1, 0, 2).copy()

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

    @property
    def all_relay_slots(self) -> range:
        """The numbers of the relay slots: 2..relay_slots+1."""
        return range(2, self.relay_slots + 2)

    def codewords(self, sender: int, messages: Mapping[int, Payload], slots: Sequence[int] | None = None) -> list[Payload]:
        """C_m = U·Ã_m: what `sender` relays of the messages that it holds, a codeword per slot.

        `slots` are some of the relay slots, all unless given.
        """
        held = list(messages)
        columns = [slot - 2 for slot in (self.all_relay_slots if slots is None else slots)]
        return self._field.combine(self._blocks[sender][np.ix_(held, columns)].T, [messages[z] for z in held])

    def equations(self, heard: ArrayLike, direct: ArrayLike, relayed: ArrayLike) -> Symbols:
        """The equations that arrived at the PS, one a row: (n, M), without those that are zero.

        heard (M × M): heard[z][m] tells whether node m holds the message of node z (the own one counts always);
        direct (M): whether the PS heard the message of node z in slot 1;
        relayed (M × relay_slots): whether the PS heard the codeword of node m in slot j + 2.
        """
        shape = (self.num_clients, self.relay_slots)
        held = _as_flags("heard", heard, (self.num_clients, self.num_clients)) | np.eye(self.num_clients, dtype=bool)
        arrived_direct = _as_flags("direct", direct, (self.num_clients,))
        arrived_relayed = _as_flags("relayed", relayed, shape)
        masked = self._blocks * held.T[:, :, None]
        codewords = masked.transpose(0, 2, 1)[arrived_relayed]
        return np.vstack([np.eye(self.num_clients, dtype=np.uint16)[arrived_direct], codewords.astype(np.uint16)])


def _cauchy(num_clients: int, field: PrimeField) -> Symbols:
    """The M × M(M-1) Cauchy matrix with entries 1/(i - (M + j)) mod p."""
    differences = np.arange(num_clients)[:, None] - num_clients - np.arange(num_clients * (num_clients - 1))[None, :]
    inverses = np.array([0] + [field.inverse(-distance) for distance in range(1, num_clients**2)], dtype=np.uint16)
    entries: Symbols = inverses[-differences]
    return entries


def _as_flags(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    flags = np.asarray(value, dtype=bool)
    if flags.shape != shape:
        raise ValueError(f"{name} has shape {flags.shape}: must be {shape}")
    return flags
