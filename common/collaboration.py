"""Collaborative relaying (ColRel): in one relay slot each node sends a weighted sum, over the reals, of what it holds.

It is a network code whose unknowns are the M sums: the sum of node m arrives with slot 2 or not at all, and the PS makes
nothing of slot 1. The sums are added, not solved for single messages.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dncfl.common.message import MessageFormat, read_message
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload, Symbols
from dncfl.common.primes import MIN_FIELD
from dncfl.common.relay_weights import optimal_weights
from dncfl.common.weighted_sum import encode_sum, sum_symbols


class CollaborativeRelaying(NetworkCode):
    """One relay slot, in which node m sends Σ α_mk·Q(Δθ_k) over the messages k that it holds, with its own."""

    def __init__(
        self, outage: NDArray[np.float64], min_field: int = MIN_FIELD, message_format: MessageFormat | None = None
    ) -> None:
        """outage: M × (M + 1), q_mk and, last, q_m towards the PS; every node needs a path, see `relay_weights.cut_off`.

        message_format: of the messages that sums are made of; not needed where none are made.
        """
        super().__init__(len(outage), 1, min_field)
        self._outage = outage
        self._format = message_format

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """α (M × M), row m the weights of node m."""
        return _weights(self._outage.tobytes(), self.num_clients)

    def coefficients(self, sender: int, slot: int, messages: Collection[int]) -> Symbols:
        row = np.zeros(self.num_clients, dtype=np.uint16)
        row[sender] = slot > 1
        return row

    def codewords(self, sender: int, messages: Mapping[int, Payload], slots: Sequence[int] | None = None) -> list[Payload]:
        """The sum of `sender`, added up in the order of the nodes in doubles, and rounded once."""
        return [self.unknown(sender, messages) for _ in (self.all_relay_slots if slots is None else slots)]

    def unknown(self, node: int, messages: Mapping[int, Payload]) -> Payload:
        assert self._format is not None
        total = np.zeros(self._format.num_values)
        for k in sorted(messages):
            if self.weights[node, k]:
                update = read_message(messages[k], self._format)
                total += self.weights[node, k] * update.values(self._format.num_levels)
        with np.errstate(over="ignore"):  # a sum that is too large does not prove itself
            return encode_sum(total.astype(np.float32))

    def counted(self, solved: Iterable[int], held: Mapping[int, Collection[int]]) -> tuple[int, ...]:
        """The nodes whose updates are part of some sum that arrived."""
        return tuple(sorted({k for m in solved for k in held[m] if self.weights[m, k]}))

    def num_symbols(self, slot: int, message: MessageFormat) -> int:
        return message.num_symbols if slot == 1 else sum_symbols(message.num_values)

    @property
    def bytes_per_codeword_symbol(self) -> int:
        return 1


@lru_cache(maxsize=8)  # they take seconds for many nodes, and codes with and without a format have them in common
def _weights(outage: bytes, num_clients: int) -> NDArray[np.float64]:
    return optimal_weights(np.frombuffer(outage).reshape(num_clients, num_clients + 1))
