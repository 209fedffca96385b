"""Repetition: relays send again what they heard, one message a slot, without coding."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload, Symbols, bytes_per_symbol
from dncfl.common.primes import MIN_FIELD
from dncfl.common.quantiser import level_type


class RepetitionCode(NetworkCode):
    """In slot s >= 2 node m repeats the message of node (m + s - 1) mod M if it holds it, else its own."""

    def __init__(
        self, num_clients: int, relay_slots: int | None = None, min_field: int = MIN_FIELD, num_levels: int = MIN_FIELD - 1
    ) -> None:
        """See `NetworkCode`; `num_levels`: of the quantiser, which decides how large a message is."""
        super().__init__(num_clients, relay_slots, min_field)
        self._num_levels = num_levels

    def coefficients(self, sender: int, slot: int, messages: Collection[int]) -> Symbols:
        row = np.zeros(self.num_clients, dtype=np.uint16)
        row[sender if slot == 1 else self._repeated(sender, slot, messages)] = 1
        return row

    def codewords(self, sender: int, messages: Mapping[int, Payload], slots: Sequence[int] | None = None) -> list[Payload]:
        """The messages that `sender` repeats, as they came."""
        return [messages[self._repeated(sender, slot, messages)] for slot in (self.all_relay_slots if slots is None else slots)]

    @property
    def bytes_per_codeword_symbol(self) -> int:
        return min(np.dtype(level_type(self._num_levels)).itemsize, bytes_per_symbol(self.p))

    def _repeated(self, sender: int, slot: int, messages: Collection[int]) -> int:
        other = (sender + slot - 1) % self.num_clients
        return other if other in messages else sender
