"""Network codes: what each node sends in each slot, and which equations the PS gets by it.

There is one unknown per node: its message, unless the code says otherwise. A transmission that arrives is an equation over
GF(p) about the unknowns, whose coefficients the PS knows.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dncfl.common.message import MessageFormat
from dncfl.common.payload import Payload, Symbols, bytes_per_symbol
from dncfl.common.primes import MIN_FIELD, smallest_prime


class NetworkCode(ABC):
    """The code of M clients, each with one slot for its own message and `relay_slots` slots for what it relays."""

    def __init__(self, num_clients: int, relay_slots: int | None = None, min_field: int = MIN_FIELD) -> None:
        """A code over the smallest GF(p) with p >= max(M², min_field); `relay_slots` is M - 1 unless given.

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

    @abstractmethod
    def coefficients(self, sender: int, slot: int, messages: Collection[int]) -> Symbols:
        """The M coefficients of what `sender` sends in `slot` when it holds `messages`, its own among them.

        All are zero where the PS has no use for it.
        """

    @abstractmethod
    def codewords(self, sender: int, messages: Mapping[int, Payload], slots: Sequence[int] | None = None) -> list[Payload]:
        """What `sender` relays of the messages that it holds, a payload per slot.

        `slots` are some of the relay slots, all unless given.
        """

    def unknown(self, node: int, messages: Mapping[int, Payload]) -> Payload:
        """What the PS knows once it has solved for the unknown of `node`, which holds `messages`."""
        return messages[node]

    def counted(self, solved: Iterable[int], held: Mapping[int, Collection[int]]) -> tuple[int, ...]:
        """W: the nodes whose updates count once some unknowns are solved for; `held` tells which messages each node holds."""
        return tuple(solved)

    def num_symbols(self, slot: int, message: MessageFormat) -> int:
        """How many symbols are sent in a slot."""
        return message.num_symbols

    def most_symbols(self, message: MessageFormat) -> int:
        """The largest number of symbols that are sent in any slot."""
        return max(self.num_symbols(slot, message) for slot in (1, *self.all_relay_slots))

    @property
    def all_relay_slots(self) -> range:
        """The numbers of the relay slots: 2..relay_slots+1."""
        return range(2, self.relay_slots + 2)

    @property
    def bytes_per_codeword_symbol(self) -> int:
        """Bytes on the wire of each symbol in what is relayed, without escapes."""
        return bytes_per_symbol(self.p)

    def relay_slot_bytes(self, message: MessageFormat) -> int:
        """Bytes on the wire of what all nodes relay in one slot, without escapes and headers."""
        return self.num_clients * self.num_symbols(2, message) * self.bytes_per_codeword_symbol

    def equations(self, heard: ArrayLike, direct: ArrayLike, relayed: ArrayLike) -> Symbols:
        """The equations that arrived at the PS, one a row: (n, M), without those that are zero.

        heard (M × M): heard[z][m] tells whether node m holds the message of node z (the own one counts always);
        direct (M): whether the PS heard the message of node z in slot 1;
        relayed (M × relay_slots): whether the PS heard what node m sent in slot j + 2.
        """
        M = self.num_clients
        held = _as_flags("heard", heard, (M, M)) | np.eye(M, dtype=bool)
        arrived = [(m, 1) for m in np.flatnonzero(_as_flags("direct", direct, (M,))).tolist()]
        arrived += [(m, j + 2) for m, j in np.argwhere(_as_flags("relayed", relayed, (M, self.relay_slots))).tolist()]
        rows = [self.coefficients(m, slot, np.flatnonzero(held[:, m]).tolist()) for m, slot in arrived]
        equations = np.array(rows, dtype=np.uint16).reshape(-1, M)
        return equations[equations.any(axis=1)]


def _as_flags(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    flags = np.asarray(value, dtype=bool)
    if flags.shape != shape:
        raise ValueError(f"{name} has shape {flags.shape}: must be {shape}")
    return flags
