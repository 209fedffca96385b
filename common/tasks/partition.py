"""Who holds which samples: i.i.d., a few classes per client, or Dirichlet class mixtures; equal numbers per client."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from dncfl.common.errors import DataError
from dncfl.common.randomness import Purpose, stream

Indices = NDArray[np.int64]

NUM_CLASSES = 10
"""Of each data set that comes with dncfl."""


class Partition(ABC):
    """A rule that gives each client its share of the training samples."""

    def split(self, labels: NDArray[np.integer], num_clients: int, seed: int) -> list[Indices]:
        """The sample numbers of each client, equally many each. Raises DataError when a client would stay empty."""
        if len(labels) < num_clients:
            raise DataError(f"{len(labels)} training samples cannot be shared among {num_clients} clients: one each is needed")
        shares = self._split(labels, num_clients, stream(seed, Purpose.PARTITION))
        if min(map(len, shares)) == 0:
            raise DataError(f"the partition leaves client {min(range(num_clients), key=lambda m: len(shares[m]))} without data")
        return shares

    @abstractmethod
    def _split(self, labels: NDArray[np.integer], num_clients: int, rng: np.random.Generator) -> list[Indices]: ...


class IidPartition(Partition):
    """A random, equal part of all samples for each client."""

    def _split(self, labels: NDArray[np.integer], num_clients: int, rng: np.random.Generator) -> list[Indices]:
        return _equal_runs(rng.permutation(len(labels)), num_clients)


class SortedPartition(Partition):
    """Samples sorted by label, one contiguous shard per client: about one class each."""

    def _split(self, labels: NDArray[np.integer], num_clients: int, rng: np.random.Generator) -> list[Indices]:
        return _equal_runs(np.argsort(labels, kind="stable"), num_clients)


@dataclass(frozen=True)
class ClassesPartition(Partition):
    """`classes` random distinct classes per client, the same number of samples of each.

    Clients that share a class take successive parts of its shuffled samples, from the start again when it is used up: no
    sample is twice at one client, and two clients share samples only where the class is too small for all who hold it.
    """

    classes: int

    def _split(self, labels: NDArray[np.integer], num_clients: int, rng: np.random.Generator) -> list[Indices]:
        pools = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        if self.classes > len(pools):
            raise DataError(f"partition = classes:{self.classes}: the data have {len(pools)} classes")
        share = min(len(labels) // num_clients // self.classes, min(map(len, pools)))
        taken = np.zeros(len(pools), dtype=np.int64)
        shares = []
        for _ in range(num_clients):
            parts = []
            for label in rng.choice(len(pools), size=self.classes, replace=False):
                places = (taken[label] + np.arange(share)) % len(pools[label])
                parts.append(pools[label][places])
                taken[label] += share
            shares.append(np.concatenate(parts))
        return shares


@dataclass(frozen=True)
class DirichletPartition(Partition):
    """Each client's class mixture is drawn from Dirichlet(alpha); no sample is used twice.

    A client draws its samples by its mixture from what the clients before it, in random order, have left; where all its
    classes are used up it takes from the rest evenly.
    """

    alpha: float

    def _split(self, labels: NDArray[np.integer], num_clients: int, rng: np.random.Generator) -> list[Indices]:
        pools = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        left = np.array([len(pool) for pool in pools])
        mixtures = rng.dirichlet(np.full(len(pools), self.alpha), size=num_clients)
        shares: list[Indices] = [np.empty(0, dtype=np.int64)] * num_clients
        for client in rng.permutation(num_clients):
            parts = []
            missing = len(labels) // num_clients
            while missing:
                wanted = np.where(left > 0, mixtures[client], 0)
                if wanted.sum() == 0:
                    wanted = (left > 0).astype(float)
                take = np.minimum(rng.multinomial(missing, wanted / wanted.sum()), left)
                parts += [pool[rest - n : rest] for pool, rest, n in zip(pools, left, take, strict=True)]
                left = left - take
                missing -= int(take.sum())
            shares[client] = np.concatenate(parts)
        return shares


def parse_partition(text: str, num_classes: int | None = None) -> Partition:
    """The partition that `iid`, `classes:K` or `dirichlet:ALPHA` names. Raises ValueError for anything else.

    num_classes: how many classes the data have, where that is known.
    """
    kind, _, number = text.partition(":")
    if text == "iid":
        return IidPartition()
    if kind == "classes":
        if not number.isdecimal() or not 1 <= int(number) <= (num_classes or int(number)):
            limit = f"from 1 to {num_classes}" if num_classes else "of at least 1"
            raise ValueError(f"classes per client must be a whole number {limit}, as in classes:2")
        return SortedPartition() if int(number) == 1 else ClassesPartition(int(number))
    if kind == "dirichlet":
        try:
            alpha = float(number)
        except ValueError:
            alpha = 0.0
        if not alpha > 0 or not isfinite(alpha):
            raise ValueError("the Dirichlet parameter must be a positive number, as in dirichlet:0.5")
        return DirichletPartition(alpha)
    raise ValueError("must be iid, classes:K or dirichlet:ALPHA")


def _equal_runs(order: Indices, num_clients: int) -> list[Indices]:
    """Equal contiguous runs of an order; what is left over after the last run is not used."""
    size = len(order) // num_clients
    return [order[client * size : (client + 1) * size] for client in range(num_clients)]
