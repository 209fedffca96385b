"""Whole rounds without training: the real processes, sockets and protocol, with made-up updates and no test of the model."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter

import numpy as np

from dncfl.common.config import Config
from dncfl.common.payload import Payload
from dncfl.common.running import run_beside, run_until_signal
from dncfl.common.scheme import network_code
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.launch.local import LocalNodes
from dncfl.launch.serving import LOOPBACK
from dncfl.node.trainer import LocalUpdate, encode_update
from dncfl.server.aggregation import aggregate
from dncfl.server.global_model import Step
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord

SPREAD = 0.03
"""Standard deviation of made-up updates, well within the quantiser's bounds."""


class NoTraining:
    """A trainer that has its update already; it is quantised and encoded each round, as a trained one is."""

    def __init__(self, num_parameters: int, config: Config, client: int) -> None:
        self._config = config
        self._client = client
        self._p = network_code(config).p
        self._delta = np.random.default_rng(client).standard_normal(num_parameters, dtype=np.float32) * np.float32(SPREAD)

    def update(self, theta: Vector, round: int, before_step: Callable[[], None] = lambda: None) -> LocalUpdate:
        started = perf_counter()
        message, num_clipped = encode_update(self._config, self._client, self._delta, round, self._p, num_samples=1)
        return LocalUpdate(
            message=message,
            train_loss=0.0,
            num_clipped=num_clipped,
            train_seconds=0.0,
            encode_seconds=perf_counter() - started,
        )


class UntestedModel:
    """θ that is averaged as in a run, but never tested."""

    def __init__(self, config: Config, num_parameters: int) -> None:
        self._config = config
        self.theta: Vector = np.zeros(num_parameters, dtype=np.float32)

    @property
    def num_parameters(self) -> int:
        return self.theta.size

    def step(self, messages: Mapping[int, Payload], round: int, before_batch: Callable[[], None] = lambda: None) -> Step:
        started = perf_counter()
        theta = aggregate(self._config, self.theta, messages, round)
        return Step(theta=theta, accuracy=0.0, loss=0.0, aggregate_seconds=perf_counter() - started, evaluate_seconds=0.0)


def untrained_rounds(config: Config, num_parameters: int) -> tuple[list[float], list[RoundRecord]]:
    """The seconds from each round's end to the next one's, and the records, of all rounds but the first."""
    ends: list[float] = []
    records: list[RoundRecord] = []

    def record(round_record: RoundRecord, _: Sequence[AttemptTrace]) -> None:
        ends.append(perf_counter())
        records.append(round_record)

    nodes = LocalNodes(config, "warning", partial(NoTraining, num_parameters))

    async def work() -> None:
        server = ServerProcess(config, UntestedModel(config, num_parameters), record, Observer())
        with server.listening(LOOPBACK) as port:
            try:
                nodes.start(LOOPBACK, port)
                await run_beside(server.serve(), nodes.watch())
            except BaseException:
                nodes.terminate()
                raise
            finally:
                nodes.stop()

    run_until_signal(work())
    return np.diff(ends).tolist(), records[1:]
