"""The reference: a whole run in one process, in a straight line, without sockets, protocol or online decoder.

It shares the parts with the socket run (training, quantiser, code, channel, aggregation) but not the way they are put
together: which messages are recovered follows from the rank of all arrived equations at once, and a recovered message is
the one its node made. So a run over sockets that ends with the same model decoded every payload rightly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dncfl.common.channel import Channel, Outcome
from dncfl.common.config import Config
from dncfl.common.errors import ConfigError, DataError
from dncfl.common.field import PrimeField, determined
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload, Symbols
from dncfl.common.running import uninterrupted
from dncfl.common.scheme import channel, network_code
from dncfl.common.trace import NOT_LISTENED, AttemptTrace
from dncfl.node.trainer import LocalUpdate, local_trainers
from dncfl.server.global_model import GlobalModel, Step
from dncfl.server.policy import must_repeat, needs_relays
from dncfl.server.records import RoundRecord, attempt_figures, local_figures

Flags = NDArray[np.bool_]


def reference_rounds(
    config: Config, model: GlobalModel, communicate: "Callable[[int], Communication]"
) -> Iterator[tuple[RoundRecord, list[AttemptTrace]]]:
    """The rounds of a run, one by one, each with the communication that `communicate` gives for its number.

    `model` takes each step once its record has been taken; a signal waits for both.
    """
    trainers = local_trainers(config, range(config.clients))
    for round in range(model.rounds_done + 1, config.rounds + 1):
        started = perf_counter()
        communication = communicate(round)
        decoded = perf_counter()
        updates = {m: trainers[m].update(model.theta, round) for m in communication.present}
        step, record = round_outcome(config, model, communication, updates, decoded - started)
        with uninterrupted():
            yield record, communication.traces
            model.take(step, round)


def round_outcome(
    config: Config,
    model: GlobalModel,
    communication: "Communication",
    updates: Mapping[int, LocalUpdate],
    decode_seconds: float,
) -> tuple[Step, RoundRecord]:
    """What a round's communication makes of the updates (by node) of those who are present: a step of θ, and its record."""
    code = network_code(config, model.message_format)
    payloads = communication.received({m: update.message for m, update in updates.items()}, code)
    step = model.step(payloads, communication.round)
    seconds = {
        "training": sum(update.train_seconds for update in updates.values()),
        "quantise": sum(update.encode_seconds for update in updates.values()),
        "decode": decode_seconds,
        "aggregate": step.aggregate_seconds,
        "evaluate": step.evaluate_seconds,
    }
    record = RoundRecord(
        round=communication.round,
        **asdict(step.test),
        recovered=communication.recovered,
        direct=tuple(int(m) for m in np.flatnonzero(communication.direct)),
        rank=communication.rank,
        suspects=(),
        num_dropped=0,
        **local_figures(list(updates.values()), model.num_parameters),
        **attempt_figures(communication.traces, communication.code, model.message_format),
        bytes={},
        seconds=seconds | {"total": sum(seconds.values())},
    )
    return step, record


def simulated(config: Config, links: Channel, round: int) -> "Communication":
    """A round's communication over a channel, as often as the decode policy asks."""
    communication = Communication(config, round)
    while not communication.traces or communication.must_repeat:
        communication.attempt_over(links)
    return communication


def over_channel(config: Config) -> "Callable[[int], Communication]":
    """The communication of each round over the run's own channel.

    Raises ConfigError for faults on purpose, which only processes can suffer, DataError when a recorded trace cannot be read.
    """
    if config.faults:
        raise ConfigError(f"faults: {config.faults[0]} strikes in a run over sockets only, not in one that is simulated")
    return partial(simulated, config, channel(config))


def as_recorded(config: Config, attempts: Sequence[AttemptTrace], round: int) -> "Communication":
    """A round's communication as it was recorded. Raises DataError when it was not."""
    communication = Communication(config, round)
    try:
        for attempt in attempts:
            if attempt.round == round:
                communication.attempt_as(attempt)
    except (IndexError, ValueError) as error:
        raise DataError(f"the trace of round {round} does not fit {config.clients} clients: {error}") from None
    if not communication.traces:
        raise DataError(f"the trace holds nothing for round {round}")
    return communication


class Communication:
    """One round's communication as matrices: who holds what, and what reached the PS."""

    def __init__(self, config: Config, round: int) -> None:
        self.code = network_code(config)
        self._field = PrimeField(self.code.p)
        self._config = config
        self.round = round
        self.traces: list[AttemptTrace] = []
        num_clients = config.clients
        self.present: tuple[int, ...] = ()
        self.direct: Flags = np.zeros(num_clients, dtype=bool)
        self._held: Flags = np.eye(num_clients, dtype=bool)
        self._equations: Symbols = np.zeros((0, num_clients), dtype=np.uint16)
        self._reduced: Symbols = self._equations

    def attempt_over(self, links: Channel) -> None:
        """One more attempt: slot 1 and the relay slots that are needed, on top of what has arrived before."""
        num_clients, place = self._config.clients, {"round": self.round, "attempt": len(self.traces) + 1}
        self.present = tuple(range(num_clients))
        heard = np.eye(num_clients, dtype=bool)
        if self.code.relay_slots:
            heard = np.stack([links.delivers(**place, slot=1, receiver=k) for k in range(num_clients)], axis=1)
        direct = links.delivers(**place, slot=1, receiver=num_clients)
        self._take_slot_1(heard, direct)
        used = []
        for slot in self.code.all_relay_slots:
            if self._config.early_stop and not needs_relays(self.present, self.solved):
                break
            used.append(links.delivers(**place, slot=slot, receiver=num_clients))
            self._take_relay_slot(slot, used[-1])
        relayed = np.stack(used, axis=1) if used else np.zeros((num_clients, 0), dtype=bool)
        self.traces.append(self._trace(heard, direct, relayed))

    def attempt_as(self, trace: AttemptTrace) -> None:
        """One more attempt whose links behave as they were recorded. Raises ValueError or IndexError for another size."""
        num_clients = self._config.clients
        slot1 = np.array([list(row) for row in trace.slot1])
        heard = (slot1[:, :num_clients] == Outcome.DELIVERED.value) | np.eye(num_clients, dtype=bool)
        self._take_slot_1(heard, slot1[:, num_clients] == Outcome.DELIVERED.value)
        for slot in range(2, trace.relay_slots + 2):
            delivered = np.array([row[slot - 2] == Outcome.DELIVERED.value for row in trace.relay])
            self._take_relay_slot(slot, delivered)
        self.traces.append(trace)
        transmitted = {m for m, row in enumerate(trace.slot1) if set(row) - {Outcome.LOST.value, NOT_LISTENED}}
        self.present = tuple(sorted(transmitted.union(self.present, self.solved)))

    def _take_slot_1(self, heard: Flags, direct: Flags) -> None:
        self._held |= heard
        self.direct |= direct
        self._take(self.code.equations(self._held, direct, self._no_relays()))

    def _take_relay_slot(self, slot: int, delivered: Flags) -> None:
        relayed = self._no_relays()
        relayed[:, slot - 2] = delivered
        self._take(self.code.equations(self._held, np.zeros_like(delivered), relayed))

    def _no_relays(self) -> Flags:
        return np.zeros((self._config.clients, self.code.relay_slots), dtype=bool)

    def _take(self, equations: Symbols) -> None:
        self._equations = np.vstack([self._equations, equations])
        self._reduced, _ = self._field.row_reduce(self._equations)

    @property
    def rank(self) -> int:
        """The rank of all equations that arrived."""
        return len(self._reduced)

    @property
    def solved(self) -> tuple[int, ...]:
        """The unknowns that these equations determine, but for those that were refused."""
        refused = self.traces[-1].refused if self.traces else ()
        return tuple(z for z in determined(self._reduced) if z not in refused)

    @property
    def recovered(self) -> tuple[int, ...]:
        """W: the nodes whose updates count."""
        return self.code.counted(self.solved, {m: self._held_by(m) for m in self.solved})

    def received(self, messages: Mapping[int, Payload], code: NetworkCode) -> dict[int, Payload]:
        """What the PS gets of each node, when those that are present made these messages; the code knows their format."""
        return {m: code.unknown(m, {z: messages[z] for z in self._held_by(m)}) for m in self.solved}

    def _held_by(self, node: int) -> list[int]:
        held: list[int] = np.flatnonzero(self._held[:, node]).tolist()
        return held

    @property
    def must_repeat(self) -> bool:
        """Whether the decode policy asks for another attempt."""
        involved = np.flatnonzero(self._equations.any(axis=0)).tolist()
        return must_repeat(self._config, len(self.traces), involved, self.solved)

    def _trace(self, heard: Flags, direct: Flags, relayed: Flags) -> AttemptTrace:
        between = _letters(heard)
        if not self.code.relay_slots:
            between[:] = NOT_LISTENED
        np.fill_diagonal(between, NOT_LISTENED)
        slot1 = np.hstack([between, _letters(direct[:, None])])
        return AttemptTrace(
            round=self.round,
            attempt=len(self.traces) + 1,
            slot1=tuple("".join(row) for row in slot1),
            relay=tuple("".join(row) for row in _letters(relayed)),
        )


def _letters(delivered: Flags) -> NDArray[np.str_]:
    return np.where(delivered, Outcome.DELIVERED.value, Outcome.ERASED.value)
