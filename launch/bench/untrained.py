"""Whole rounds without training: the real processes, sockets and protocol, with made-up updates and no test of the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np

from dncfl.common.config import Config
from dncfl.common.payload import Payload
from dncfl.common.running import run_until_signal
from dncfl.common.scheme import message_format
from dncfl.common.tasks.model import Vector
from dncfl.common.tasks.training import Evaluation
from dncfl.common.trace import AttemptTrace
from dncfl.launch.bench.no_training import NoTraining
from dncfl.launch.local import LocalNodes
from dncfl.launch.serving import serve_nodes
from dncfl.node.trainer import MakeTrainer
from dncfl.server.aggregation import aggregate
from dncfl.server.global_model import Model, Step
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord

WARM_UP = 3
"""Rounds at each start that are not counted: memory is touched for the first time."""


class UntestedModel:
    """θ that is averaged as in a run, but never tested."""

    def __init__(self, config: Config, num_parameters: int) -> None:
        self._config = config
        self.theta: Vector = np.zeros(num_parameters, dtype=np.float32)
        self.rounds_done = 0
        self.tensor_sizes: tuple[int, ...] = (num_parameters,)
        self.message_format = message_format(config, self.tensor_sizes)

    def take(self, step: Step, round: int) -> None:
        self.theta, self.rounds_done = step.theta, round

    def step(self, payloads: Mapping[int, Payload], round: int, before_batch: Callable[[], None] = lambda: None) -> Step:
        started = perf_counter()
        theta = aggregate(self._config, self.message_format, self.theta, payloads, round)
        untested = Evaluation(accuracy=0.0, loss=0.0, recall=())
        return Step(theta=theta, test=untested, aggregate_seconds=perf_counter() - started, evaluate_seconds=0.0)


@dataclass(frozen=True)
class Rounds:
    """What rounds took, without the first ones, and the model that they ended with."""

    seconds: list[float]
    """from each round's end to the next one's"""
    records: list[RoundRecord]
    theta: Vector


def untrained_rounds(config: Config, num_parameters: int, look: Callable[[], None] = lambda: None) -> Rounds:
    """Rounds with made-up updates; `look` is called once, after the second round."""
    return timed_rounds(config, UntestedModel(config, num_parameters), partial(NoTraining, num_parameters), look)


def timed_rounds(config: Config, model: Model, make_trainer: MakeTrainer, look: Callable[[], None] = lambda: None) -> Rounds:
    """All rounds of a run on this machine, without a run folder; `look` is called once, after the second round."""
    ends: list[float] = []
    records: list[RoundRecord] = []

    def record(round_record: RoundRecord, _attempts: Sequence[AttemptTrace], _theta: Vector) -> None:
        ends.append(perf_counter())
        records.append(round_record)
        if len(records) == 2:
            look()

    server = ServerProcess(config, model, record, Observer())
    run_until_signal(serve_nodes(server, LocalNodes(config, "warning", make_trainer)))
    return Rounds(np.diff(ends[WARM_UP - 1 :]).tolist(), records[WARM_UP:], model.theta)
