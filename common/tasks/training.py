"""Local training at a node, and evaluation at the PS."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.sgd import sgd

from dncfl.common.randomness import Purpose, stream, torch_seed
from dncfl.common.tasks.data import Samples

EVALUATION_BATCH = 1000


class TrainingStopped(Exception):
    """Training or evaluation was given up because the process leaves."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a node trains in one round: `epochs` passes of SGD over its data, reshuffled each pass, short last batch kept."""

    epochs: int
    batch_size: int
    lr: float
    momentum: float


class Optimiser:
    """SGD with momentum by torch's own function: the class around it imports torch._dynamo, for a second and 160 MB."""

    def __init__(self, parameters: Iterable[torch.Tensor], recipe: Recipe) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._momenta: list[torch.Tensor | None] = [None] * len(self._parameters)
        self._recipe = recipe

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        momenta = [self._momenta[i] for i in moved]
        sgd(
            [self._parameters[i] for i in moved],
            [grad for parameter in self._parameters if (grad := parameter.grad) is not None],
            momenta,
            weight_decay=0.0,
            momentum=self._recipe.momentum,
            lr=self._recipe.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for i, momentum in zip(moved, momenta, strict=True):
            self._momenta[i] = momentum


def train(
    model: nn.Module,
    samples: Samples,
    recipe: Recipe,
    *,
    seed: int,
    round: int,
    client: int,
    before_step: Callable[[], None] = lambda: None,
) -> float:
    """Train a model in place with a new optimiser; returns the mean loss of the last epoch.

    The order of samples and the dropout masks depend on (seed, round, client) alone. `before_step` is called before each
    step; what it raises ends the training.
    """
    model.train()
    optimiser = Optimiser(model.parameters(), recipe)
    shuffle = stream(seed, Purpose.SHUFFLE, round=round, sender=client)
    total = 0.0
    with torch.random.fork_rng(devices=[samples.inputs.device] if samples.inputs.is_cuda else []):
        torch.manual_seed(torch_seed(seed, Purpose.DROPOUT, round=round, sender=client))
        for _ in range(recipe.epochs):
            total = 0.0
            order = torch.from_numpy(shuffle.permutation(len(samples))).to(samples.labels.device)
            for batch in torch.split(order, recipe.batch_size):
                before_step()
                model.zero_grad()
                loss = cross_entropy(model(samples.inputs[batch]), samples.labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
                optimiser.step()
                total += loss.item() * len(batch)
    return total / len(samples)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How good a model is on samples."""

    accuracy: float
    """share of the samples that it recognises"""
    loss: float
    """mean cross-entropy"""
    recall: tuple[float, ...]
    """share that it recognises of each class's samples; 0 for a class without any"""


@torch.no_grad()
def evaluate(model: nn.Module, samples: Samples, before_step: Callable[[], None] = lambda: None) -> Evaluation:
    """Test a model; `before_step` is called before each batch, as in `train`."""
    model.eval()
    recognised, total = [], 0.0
    batches = (torch.split(part, EVALUATION_BATCH) for part in (samples.inputs, samples.labels))
    for inputs, labels in zip(*batches, strict=True):
        before_step()
        scores = model(inputs)
        recognised.append(labels[scores.argmax(1) == labels])
        total += float(cross_entropy(scores, labels, reduction="sum"))
    correct, all_there = (torch.bincount(those, minlength=scores.shape[1]) for those in (torch.cat(recognised), samples.labels))
    return Evaluation(
        accuracy=int(correct.sum()) / len(samples),
        loss=total / len(samples),
        recall=tuple((correct.double() / all_there.clamp(min=1)).tolist()),
    )
