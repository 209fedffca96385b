"""A trainer for measurements. Every node imports this module, so it imports nothing that a node does not have already."""

from collections.abc import Callable
from time import perf_counter

import numpy as np

from dncfl.common.config import Config
from dncfl.common.tasks.model import Vector
from dncfl.node.trainer import LocalUpdate, encode_update

SPREAD = 0.03
"""Standard deviation of made-up updates, well within the quantiser's bounds."""


class NoTraining:
    """A trainer that has its update already; it is quantised and encoded each round, as a trained one is."""

    def __init__(self, num_parameters: int, config: Config, client: int) -> None:
        self._config = config
        self._client = client
        self.tensor_sizes = (num_parameters,)
        self._delta = np.random.default_rng(client).standard_normal(num_parameters, dtype=np.float32) * np.float32(SPREAD)

    def update(self, theta: Vector, round: int, before_step: Callable[[], None] = lambda: None) -> LocalUpdate:
        started = perf_counter()
        message, num_clipped = encode_update(
            self._config, self._client, self._delta, self.tensor_sizes, round=round, num_samples=1
        )
        return LocalUpdate(
            message=message,
            train_loss=0.0,
            num_clipped=num_clipped,
            train_seconds=0.0,
            encode_seconds=perf_counter() - started,
        )
