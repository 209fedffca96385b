"""From the global model to a message: local training, quantisation, encoding. It blocks; the node runs it in a thread."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from torch import nn

from dncfl.common.config import Config
from dncfl.common.errors import UpdateRefused
from dncfl.common.message import encode_message
from dncfl.common.payload import Payload
from dncfl.common.randomness import Purpose, stream
from dncfl.common.tasks.data import Samples, load_dataset
from dncfl.common.tasks.model import (
    Vector,
    build_model,
    counters,
    load_vector,
    model_errors,
    named_tensors,
    sizes_of_tensors,
    to_vector,
)
from dncfl.common.tasks.training import Recipe, TrainingStopped, train
from dncfl.common.update import part_sizes, quantise_update


@dataclass(frozen=True, kw_only=True)
class LocalUpdate:
    """The outcome of one local training: the message U_m and how it came about."""

    message: Payload
    train_loss: float
    num_clipped: int
    train_seconds: float
    encode_seconds: float


class Trainer(Protocol):
    """What makes a node's message of a round."""

    @property
    def tensor_sizes(self) -> tuple[int, ...]:
        """How many values of an update each of the model's tensors has, d in all."""

    def update(self, theta: Vector, round: int, before_step: Callable[[], None] = ...) -> LocalUpdate:
        """Train from θ and encode the update; `before_step` may end it by raising TrainingStopped."""


MakeTrainer = Callable[[Config, int], Trainer]
"""A way to get the trainer of a node."""


class LocalTrainer:
    """One node's share of the data and its way to train on it."""

    def __init__(self, config: Config, client: int, model: nn.Module, samples: Samples) -> None:
        """A trainer on samples that are this client's alone; the model, a new one, is only a vessel that each round loads."""
        self._config = config
        self._client = client
        self._model = model
        self._new_counters = [counter.clone() for counter in counters(model)]
        self.tensor_sizes = sizes_of_tensors(model)
        self.samples = samples
        self._recipe = recipe_of(config)

    def update(self, theta: Vector, round: int, before_step: Callable[[], None] = lambda: None) -> LocalUpdate:
        """Train from θ and encode Q(Δθ). `before_step` may end it by raising TrainingStopped.

        Raises UpdateRefused when Δθ is not finite, ModelError when the model raises an error.
        """
        started = perf_counter()
        load_vector(self._model, theta)
        for counter, new in zip(counters(self._model), self._new_counters, strict=True):
            counter.copy_(new)
        with model_errors(f"training at node {self._client} in round {round}", but=TrainingStopped):
            loss = train(
                self._model,
                self.samples,
                self._recipe,
                seed=self._config.seed,
                round=round,
                client=self._client,
                before_step=before_step,
            )
        delta = to_vector(self._model) - theta
        trained = perf_counter()
        named = named_tensors(self._model, delta)
        refuse_unless_finite(named, loss, client=self._client, round=round, lr=self._config.lr)
        message, num_clipped = encode_update(
            self._config, self._client, delta, self.tensor_sizes, round=round, num_samples=len(self.samples)
        )
        return LocalUpdate(
            message=message,
            train_loss=loss,
            num_clipped=num_clipped,
            train_seconds=trained - started,
            encode_seconds=perf_counter() - trained,
        )


def refuse_unless_finite(update: Mapping[str, Vector], loss: float, *, client: int, round: int, lr: float) -> None:
    """Raise UpdateRefused when Δθ, as named tensors, or the loss of its training holds a value that is not finite."""
    bad = {name: int(count) for name, part in update.items() if (count := np.count_nonzero(~np.isfinite(part)))}
    bad |= {} if np.isfinite(loss) else {"the loss": 1}
    if bad:
        listed = ", ".join(f"{count} in {name}" for name, count in bad.items())
        raise UpdateRefused(
            f"what node {client} has trained in round {round} holds NaN or infinite values ({listed}) and is not sent; "
            f"a smaller --lr than {lr:g} may help"
        )


def recipe_of(config: Config) -> Recipe:
    """How the nodes of a run train."""
    return Recipe(epochs=config.local_epochs, batch_size=config.batch_size, lr=config.lr, momentum=config.momentum)


def encode_update(
    config: Config, client: int, delta: Vector, tensor_sizes: Sequence[int], *, round: int, num_samples: int
) -> tuple[Payload, int]:
    """U_m: the message of an update of tensors with these sizes, and how many of its values were clipped."""
    noise = stream(config.seed, Purpose.QUANTISER, round=round, sender=client)
    sizes = part_sizes(config.bound, tensor_sizes)
    update, num_clipped = quantise_update(
        delta, sizes=sizes, rule=config.bound, num_levels=config.levels, num_samples=num_samples, rng=noise
    )
    return encode_message(update, config.field, round=round, sender=client), num_clipped


def local_trainer(config: Config, client: int) -> LocalTrainer:
    """The trainer of one node; see `local_trainers`."""
    return local_trainers(config, [client])[0]


def local_trainers(config: Config, clients: Sequence[int]) -> list[LocalTrainer]:
    """The trainers of some nodes, each with its own share of the data. One torch thread. Raises DataError or ConfigError."""
    torch.set_num_threads(1)
    dataset = load_dataset(config.dataset, config.data_root, train=True)
    shares = config.partition_scheme.split(dataset.labels.numpy(), config.clients, config.seed)
    model = build_model(config.model, config.seed, config.device, dataset.form)
    return [LocalTrainer(config, client, model, dataset.samples(shares[client], config.device)) for client in clients]
