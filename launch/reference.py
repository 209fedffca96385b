"""The reference: a whole run in one process, in a straight line, without sockets, protocol or online decoder.

It shares the parts with the socket run (training, quantiser, code, channel, aggregation) but not the way they are put
together: which messages are recovered follows from the rank of all arrived equations at once, and a recovered message is
the one its node made. So a run over sockets that ends with the same model decoded every payload rightly.
"""

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dncfl.common.channel import Channel, Outcome
from dncfl.common.config import Config
from dncfl.common.field import PrimeField, determined
from dncfl.common.payload import Symbols
from dncfl.common.scheme import network_code
from dncfl.common.trace import NOT_LISTENED, AttemptTrace
from dncfl.node.trainer import local_trainers
from dncfl.server.global_model import GlobalModel
from dncfl.server.policy import must_repeat, needs_relays
from dncfl.server.records import RoundRecord, attempt_figures, local_figures

Flags = NDArray[np.bool_]


def reference_rounds(config: Config, links: Channel, model: GlobalModel) -> Iterator[tuple[RoundRecord, list[AttemptTrace]]]:
    """The rounds of a run, one by one; `model` takes each step once its record has been taken."""
    clients = range(config.clients)
    trainers = local_trainers(config, clients)
    for round in range(1, config.rounds + 1):
        started = perf_counter()
        updates = [trainer.update(model.theta, round) for trainer in trainers]
        trained = perf_counter()
        communication = Communication(config, links, round)
        while communication.attempt == 0 or communication.must_repeat:
            communication.repeat()
        decoded = perf_counter()
        step = model.step({m: updates[m].message for m in communication.recovered}, round)
        record = RoundRecord(
            round=round,
            accuracy=step.accuracy,
            loss=step.loss,
            recovered=communication.recovered,
            direct=tuple(int(m) for m in np.flatnonzero(communication.direct)),
            rank=communication.rank,
            **local_figures(updates, model.num_parameters),
            **attempt_figures(communication.traces, communication.code, model.num_parameters),
            bytes={},
            seconds={
                "training": sum(update.train_seconds for update in updates),
                "quantise": sum(update.encode_seconds for update in updates),
                "decode": decoded - trained,
                "aggregate": step.aggregate_seconds,
                "evaluate": step.evaluate_seconds,
                "total": perf_counter() - started,
            },
        )
        yield record, communication.traces
        model.theta = step.theta


class Communication:
    """One round's communication as matrices: who holds what, and what reached the PS."""

    def __init__(self, config: Config, links: Channel, round: int) -> None:
        self.code = network_code(config)
        self._field = PrimeField(self.code.p)
        self._config = config
        self._links = links
        self._round = round
        self.attempt = 0
        self.traces: list[AttemptTrace] = []
        num_clients = config.clients
        self.direct: Flags = np.zeros(num_clients, dtype=bool)
        self._held: Flags = np.eye(num_clients, dtype=bool)
        self._equations: Symbols = np.zeros((0, num_clients), dtype=np.uint16)
        self._reduced: Symbols = self._equations

    def repeat(self) -> None:
        """One more attempt: slot 1 and the relay slots that are needed, on top of what has arrived before."""
        self.attempt += 1
        num_clients = self._config.clients
        if self.code.relay_slots:
            heard = np.stack([self._slot(1, k) for k in range(num_clients)], axis=1)
        else:
            heard = np.eye(num_clients, dtype=bool)
        direct = self._slot(1, num_clients)
        self._held |= heard
        self.direct |= direct
        relayed = np.zeros((num_clients, self.code.relay_slots), dtype=bool)
        self._take(self.code.equations(self._held, direct, relayed))
        used = 0
        for slot in self.code.all_relay_slots:
            if self._config.early_stop and not needs_relays(num_clients, self.recovered):
                break
            only_this = np.zeros_like(relayed)
            only_this[:, slot - 2] = relayed[:, slot - 2] = self._slot(slot, num_clients)
            self._take(self.code.equations(self._held, np.zeros_like(direct), only_this))
            used += 1
        self.traces.append(self._trace(heard, direct, relayed[:, :used]))

    def _take(self, equations: Symbols) -> None:
        self._equations = np.vstack([self._equations, equations])
        self._reduced, _ = self._field.row_reduce(self._equations)

    def _slot(self, slot: int, receiver: int) -> Flags:
        return self._links.delivers(round=self._round, attempt=self.attempt, slot=slot, receiver=receiver)

    @property
    def rank(self) -> int:
        """The rank of all equations that arrived."""
        return len(self._reduced)

    @property
    def recovered(self) -> tuple[int, ...]:
        """W: the messages that these equations determine."""
        return determined(self._reduced)

    @property
    def must_repeat(self) -> bool:
        """Whether the decode policy asks for another attempt."""
        involved = np.flatnonzero(self._equations.any(axis=0)).tolist()
        return must_repeat(self._config, self.attempt, involved, self.recovered)

    def _trace(self, heard: Flags, direct: Flags, relayed: Flags) -> AttemptTrace:
        between = _letters(heard)
        if not self.code.relay_slots:
            between[:] = NOT_LISTENED
        np.fill_diagonal(between, NOT_LISTENED)
        slot1 = np.hstack([between, _letters(direct[:, None])])
        return AttemptTrace(
            round=self._round,
            attempt=self.attempt,
            slot1=tuple("".join(row) for row in slot1),
            relay=tuple("".join(row) for row in _letters(relayed)),
        )


def _letters(delivered: Flags) -> NDArray[np.str_]:
    return np.where(delivered, Outcome.DELIVERED.value, Outcome.ERASED.value)
