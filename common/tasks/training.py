"""Local training at a node, and evaluation at the PS."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

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
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum)
    shuffle = stream(seed, Purpose.SHUFFLE, round=round, sender=client)
    total = 0.0
    with torch.random.fork_rng(devices=[samples.images.device] if samples.images.is_cuda else []):
        torch.manual_seed(torch_seed(seed, Purpose.DROPOUT, round=round, sender=client))
        for _ in range(recipe.epochs):
            total = 0.0
            order = torch.from_numpy(shuffle.permutation(len(samples))).to(samples.labels.device)
            for batch in torch.split(order, recipe.batch_size):
                before_step()
                optimiser.zero_grad()
                loss = cross_entropy(model(samples.images[batch]), samples.labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
                optimiser.step()
                total += loss.item() * len(batch)
    return total / len(samples)


@torch.no_grad()
def evaluate(model: nn.Module, samples: Samples, before_step: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """The accuracy (0..1) and mean cross-entropy of a model; `before_step` is called before each batch, as in `train`."""
    model.eval()
    correct, total = 0, 0.0
    batches = (torch.split(part, EVALUATION_BATCH) for part in (samples.images, samples.labels))
    for images, labels in zip(*batches, strict=True):
        before_step()
        scores = model(images)
        correct += int((scores.argmax(1) == labels).sum())
        total += float(cross_entropy(scores, labels, reduction="sum"))
    return correct / len(samples), total / len(samples)
