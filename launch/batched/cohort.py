"""Local training of many clients side by side: the same recipe, each from its own θ on its own samples.

The order of samples is drawn as by `dncfl.common.tasks.training.train`, the dropout masks from a generator of each client.
So a client's training does not depend on who is trained beside it, but for the rounding of larger products.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from dncfl.common.randomness import Purpose, stream, torch_seed
from dncfl.common.tasks.data import SIDE, Samples
from dncfl.common.tasks.model import PaperCNN, Vector
from dncfl.common.tasks.partition import Indices
from dncfl.common.tasks.training import Optimiser, Recipe
from dncfl.common.threads import each, threads_available
from dncfl.launch.batched.cnn import Dropout, scores

SAMPLES_AT_ONCE = {"cpu": 256, "cuda": 2**17}
"""What is computed as one tensor: as much as stays in a processor's cache, or as keeps a GPU busy."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """Who is trained: a client of a run in a round, from θ, on the samples of these numbers."""

    theta: Vector
    indices: Indices
    seed: int
    round: int
    number: int


@dataclass(frozen=True)
class Trained:
    """θ + Δθ of a client, and the mean loss of its last epoch."""

    theta: Vector
    loss: float


class Cohort:
    """Trains clients on one data set."""

    def __init__(self, samples: Samples, recipe: Recipe) -> None:
        """samples: the whole training set on the device that computes."""
        self._images, self._labels = samples.inputs.flatten(1), samples.labels
        self._device = samples.inputs.device
        self._recipe = recipe
        self._shapes = [parameter.shape for parameter in PaperCNN().parameters()]
        self._at_once = SAMPLES_AT_ONCE[self._device.type]

    def train(self, clients: Sequence[Client]) -> list[Trained]:
        """One local training of each client; on processors, as many threads work as numba may use."""
        together = max(1, self._at_once // self._recipe.batch_size)
        alike: dict[int, list[Client]] = {}
        for client in clients:
            alike.setdefault(len(client.indices), []).append(client)
        groups = [group for same in alike.values() for group in _shared_out(same, together)]
        trained = each(self._train_group, groups)
        outcomes = dict(zip(map(id, chain(*groups)), chain(*trained), strict=True))
        return [outcomes[id(client)] for client in clients]

    def _train_group(self, clients: Sequence[Client]) -> list[Trained]:
        """Clients with equally many samples, in the same tensors."""
        parameters = self._parameters(clients)
        optimiser = Optimiser(parameters, self._recipe)
        shuffles = [stream(c.seed, Purpose.SHUFFLE, round=c.round, sender=c.number) for c in clients]
        generators = [torch.Generator(self._device) for _ in clients]
        for client, generator in zip(clients, generators, strict=True):
            generator.manual_seed(torch_seed(client.seed, Purpose.DROPOUT, round=client.round, sender=client.number))
        for _ in range(self._recipe.epochs):
            losses = torch.zeros(len(clients), device=self._device)
            order = np.stack([c.indices[s.permutation(len(c.indices))] for c, s in zip(clients, shuffles, strict=True)])
            for batch in torch.split(torch.from_numpy(order).to(self._device), self._recipe.batch_size, dim=1):
                losses += self._backward(parameters, batch, generators)
                optimiser.step()
        thetas = torch.cat([parameter.detach().flatten(1) for parameter in parameters], dim=1).cpu().numpy()
        means = (losses / len(clients[0].indices)).tolist()
        return [Trained(theta, loss) for theta, loss in zip(thetas, means, strict=True)]

    def _parameters(self, clients: Sequence[Client]) -> list[torch.Tensor]:
        thetas = torch.from_numpy(np.stack([client.theta for client in clients])).to(self._device)
        parts = torch.split(thetas, [shape.numel() for shape in self._shapes], dim=1)
        return [
            part.reshape(len(clients), *shape).clone().requires_grad_() for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def _backward(
        self, parameters: Sequence[torch.Tensor], batch: torch.Tensor, generators: Sequence[torch.Generator]
    ) -> torch.Tensor:
        """Set the gradients of each client's mean loss over its batch (clients, b); returns the summed losses (clients,)."""
        for parameter in parameters:
            parameter.grad = None
        losses = torch.zeros(len(batch), device=self._device)
        for part in torch.split(batch, max(1, self._at_once // len(batch)), dim=1):
            images = self._images[part].transpose(1, 2).contiguous().view(len(part), 1, SIDE, SIDE, -1)
            outputs = scores(parameters, images, Dropout.draw(generators, part.shape[1]))
            of_each = cross_entropy(outputs.transpose(1, 2).flatten(0, 1), self._labels[part].flatten(), reduction="none")
            loss = of_each.view(len(part), -1).sum(1)
            (loss.sum() / batch.shape[1]).backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            losses += loss.detach()
        return losses


def _shared_out(clients: Sequence[Client], together: int) -> list[list[Client]]:
    """Groups of at most `together`, of even size, so that no thread is left waiting."""
    num_groups = max(ceil(len(clients) / together), min(threads_available(), len(clients)))
    edges = [len(clients) * i // num_groups for i in range(num_groups + 1)]
    return [list(clients[first:last]) for first, last in pairwise(edges)]
