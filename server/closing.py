"""The end of a round, once communication is over: decode, aggregate, evaluate, record. It blocks; the PS runs it in a thread.

Seconds of a round, which add up to `total`:

    training   local training at the node whose training and quantising took longest
    quantise   quantising and encoding at that node
    network    all else between publishing θ and the last frame: downlink, slots, relaying, elimination, waiting
    decode     solving for the messages that did not come directly, and checking all by what came beyond need
    aggregate  from messages to the new θ
    evaluate   testing the new θ
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import perf_counter, sleep

import numpy as np

from dncfl.common.config import Config
from dncfl.common.fault_injection import FaultInjector
from dncfl.common.faults import seconds_of
from dncfl.common.network_code import NetworkCode
from dncfl.common.payload import Payload
from dncfl.common.tasks.model import Vector
from dncfl.common.tasks.training import TrainingStopped
from dncfl.common.trace import AttemptTrace
from dncfl.server.actions import CloseRound
from dncfl.server.aggregation import proves_itself
from dncfl.server.global_model import Model
from dncfl.server.records import RoundRecord, attempt_figures, local_figures
from dncfl.server.verification import Verdict, verify

RecordRound = Callable[[RoundRecord, Sequence[AttemptTrace], Vector], None]
"""Stores a round and its θ; the next round starts when it has returned."""


class RoundCloser:
    """Makes of what a round has brought the next model and a record."""

    def __init__(self, config: Config, code: NetworkCode, model: Model, record: RecordRound, faults: FaultInjector) -> None:
        self._config = config
        self._code = code
        self._model = model
        self._messages = model.message_format
        self._record = record
        self._faults = faults
        self._leaving = threading.Event()

    def leave(self) -> None:
        """Give up what goes on: the process leaves."""
        self._leaving.set()

    def decode(self, round: CloseRound) -> Verdict:
        """What can be trusted of what a round's equations determine, and who cannot."""

        def proof(sender: int, payload: Payload) -> bool:
            return proves_itself(self._config, self._messages, payload, round=round.round, sender=sender)

        rng = np.random.default_rng()  # no node can foresee its draws, and no result depends on them
        return verify(round.decoder.equations, self._config.clients, self._code.p, proof, rng)

    def close(
        self, round: CloseRound, verdict: Verdict, started: float, collected: float, traffic: dict[str, dict[str, int]]
    ) -> RoundRecord:
        """Aggregate, evaluate and record; `started` and `collected` (s, of perf_counter) are when round and decoding began.

        Raises TrainingStopped after `leave`, and StorageError, ChecksumError or ModelError as their makers do.
        """
        reports, messages = round.reports, verdict.messages
        self._meet_faults("after-decode", round.round)
        decoded = perf_counter()
        step = self._model.step(messages, round.round, self._stop_when_leaving)
        training, quantise = max(((r.train_seconds, r.encode_seconds) for r in reports), key=sum)
        damaged = {equation.sender for equation in verdict.dropped if equation.slot == 1}
        refused = tuple(z for z in round.decoder.recoverable() if z not in messages)
        attempts = (*round.attempts[:-1], round.attempts[-1].model_copy(update={"refused": refused}))
        record = RoundRecord(
            round=round.round,
            **asdict(step.test),
            recovered=self._code.counted(messages, round.held),
            direct=tuple(m for m in round.direct if m not in damaged),
            rank=round.decoder.rank,
            suspects=verdict.suspects,
            num_dropped=len(verdict.dropped),
            **local_figures(reports, self._messages.num_values),
            **attempt_figures(attempts, self._code, self._messages),
            bytes=traffic,
            seconds={
                "training": training,
                "quantise": quantise,
                "network": collected - started - training - quantise,
                "decode": decoded - collected,
                "aggregate": step.aggregate_seconds,
                "evaluate": step.evaluate_seconds,
                "total": perf_counter() - started,
            },
        )
        self._meet_faults("before-checkpoint", round.round)
        self._record(record, attempts, step.theta)
        self._model.take(step, round.round)
        return record

    def _stop_when_leaving(self) -> None:
        if self._leaving.is_set():
            raise TrainingStopped

    def _meet_faults(self, point: str, round: int) -> None:
        for fault in self._faults.strike(point, round):
            sleep(seconds_of(fault))
