"""The global model at the PS: θ, and its accuracy on the test set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch

from dncfl.common.config import Config
from dncfl.common.errors import DataError
from dncfl.common.message import MessageFormat
from dncfl.common.payload import Payload
from dncfl.common.scheme import message_format
from dncfl.common.tasks.data import Samples, load_dataset
from dncfl.common.tasks.model import (
    Vector,
    build_model,
    has_buffers,
    load_vector,
    model_errors,
    named_tensors,
    require_device,
    sha256_of,
    sizes_of_tensors,
    to_vector,
)
from dncfl.common.tasks.training import Evaluation, TrainingStopped, evaluate
from dncfl.server.aggregation import aggregate


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of θ: the new θ, how it does on the test set, and what it took."""

    theta: Vector
    test: Evaluation
    aggregate_seconds: float
    evaluate_seconds: float


class Model(Protocol):
    """What the PS knows of θ."""

    theta: Vector
    rounds_done: int
    tensor_sizes: tuple[int, ...]
    """how many values of θ each tensor has, d in all"""
    message_format: MessageFormat

    def take(self, step: Step, round: int) -> None:
        """Make the step of a round."""

    def step(self, payloads: Mapping[int, Payload], round: int, before_batch: Callable[[], None] = ...) -> Step:
        """A new θ by what the PS got in a round, see `aggregate`, tested; the model takes it by `take`."""


def load_test_set(config: Config) -> Samples:
    """The samples that θ is tested on. Raises DataError where there are none, ConfigError without the device."""
    require_device(config.device)
    samples = load_dataset(config.dataset, config.data_root, train=False).all_samples(config.device)
    if len(samples) == 0:
        raise DataError(f"the test set of {config.dataset} is empty")
    return samples


class GlobalModel:
    """θ from its seeded start through the rounds."""

    def __init__(self, config: Config, test: Samples | None = None) -> None:
        """`test`: the test set where several models share one; it is loaded otherwise. One torch thread.

        Raises DataError without test data, ConfigError for a model that cannot be built.
        """
        torch.set_num_threads(1)
        self._config = config
        self._test = load_test_set(config) if test is None else test
        self._model = build_model(config.model, config.seed, config.device, self._test.form)
        self.tensor_sizes = sizes_of_tensors(self._model)
        self.message_format = message_format(config, self.tensor_sizes)
        self.has_buffers = has_buffers(self._model)
        self.theta: Vector = to_vector(self._model)
        self.rounds_done = 0

    def take(self, step: Step, round: int) -> None:
        """Make the step of a round."""
        self.theta, self.rounds_done = step.theta, round

    def step(self, payloads: Mapping[int, Payload], round: int, before_batch: Callable[[], None] = lambda: None) -> Step:
        """A new θ by what the PS got in a round, see `aggregate`, tested; the model takes it by `take`.

        `before_batch` may end it by raising TrainingStopped. Raises ChecksumError for a damaged message, ModelError when the
        model raises an error.
        """
        started = perf_counter()
        theta = aggregate(self._config, self.message_format, self.theta, payloads, round)
        aggregated = perf_counter()
        load_vector(self._model, theta)
        with model_errors(f"evaluation after round {round}", but=TrainingStopped):
            test = evaluate(self._model, self._test, before_batch)
        return Step(
            theta=theta,
            test=test,
            aggregate_seconds=aggregated - started,
            evaluate_seconds=perf_counter() - aggregated,
        )

    @property
    def num_parameters(self) -> int:
        """d, the length of θ."""
        return int(self.theta.size)

    @property
    def sha256(self) -> str:
        """The hash of θ."""
        return sha256_of(self.theta)

    def tensors(self) -> dict[str, Vector]:
        """θ as named tensors."""
        return self.named(self.theta)

    def named(self, vector: Vector) -> dict[str, Vector]:
        """A vector of d values as named tensors."""
        return named_tensors(self._model, vector)
