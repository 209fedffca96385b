"""Local training of ten clients: by the batched engine, on all cores, and by the looped one, which has one thread."""

import os
from collections.abc import Iterator
from functools import partial

from dncfl.common.config import Config, load_config
from dncfl.common.tasks.data import load_dataset
from dncfl.common.tasks.model import build_model, to_vector
from dncfl.launch.batched.cohort import Client, Cohort
from dncfl.launch.bench.timing import Figure, take_turns
from dncfl.node.trainer import local_trainers, recipe_of


def training_figures(seconds: float, data_root: str | None) -> Iterator[Figure]:
    """One local epoch of every client, on digits, and on MNIST where its folder is given."""
    yield _training(load_config(None, {"local_epochs": 1}), seconds)
    if data_root is not None:
        yield _training(load_config(None, {"local_epochs": 1, "dataset": "mnist", "data_root": data_root}), seconds)


def _training(config: Config, seconds: float) -> Figure:
    theta = to_vector(build_model(config.model, config.seed, config.device))
    trainers = local_trainers(config, range(config.clients))
    data = load_dataset(config.dataset, config.data_root, train=True)
    cohort = Cohort(data.all_samples(config.device), recipe_of(config))
    clients = [
        Client(theta=theta, indices=share, seed=config.seed, round=1, number=m)
        for m, share in enumerate(config.partition_scheme.split(data.labels.numpy(), config.clients, config.seed))
    ]

    def one_after_the_other() -> None:
        for trainer in trainers:
            trainer.update(theta, 1)

    times = take_turns({"looped": one_after_the_other, "batched": partial(cohort.train, clients)}, seconds)
    ratio, num_cores = times["looped"] / times["batched"], len(os.sched_getaffinity(0))
    samples = sum(len(client.indices) for client in clients)
    return Figure(
        f"training: ten clients on {config.dataset}, looped engine takes",
        ratio,
        "x",
        at_least=2.0,
        note=f"{ratio / num_cores:.2f} x for each of {num_cores} cores; batched {samples / times['batched']:,.0f} samples/s",
    )
