"""Whole rounds against bare sockets and Flower, and the share that the network and the code have of a real round."""

from collections.abc import Iterator
from statistics import median

import numpy as np

from dncfl.common.config import load_config
from dncfl.common.errors import BenchmarkError
from dncfl.launch.bench.flower import flower_rounds
from dncfl.launch.bench.raw_round import raw_rounds
from dncfl.launch.bench.settings import LARGE, OUTAGE, SMALL
from dncfl.launch.bench.timing import Figure
from dncfl.launch.bench.untrained import WARM_UP, timed_rounds, untrained_rounds
from dncfl.node.trainer import local_trainer
from dncfl.server.global_model import GlobalModel


def round_figures(rounds: int, mnist_root: str | None) -> Iterator[Figure]:
    """A round without training against a round of bare sockets, and against Flower's; and its share of real rounds."""
    yield from _against_others(SMALL, 10 * rounds, (1.8, 1.2), 10.0)
    yield from _against_others(LARGE, max(4, rounds // 2), (2.0, 1.3), 2.0)
    yield _share("digits", rounds, 5.0, None)
    if mnist_root is None:
        yield Figure("share of an MNIST round", None, "%", at_most=2.0, note="needs --data-root")
    else:
        yield _share("mnist", 2, 2.0, mnist_root)


def _against_others(num_parameters: int, rounds: int, goals: tuple[float, float], flower_goal: float) -> Iterator[Figure]:
    """Three turns of each; raises BenchmarkError unless both schedules end with the same model, all recovered."""
    letter, early = (
        load_config(None, {"rounds": rounds + WARM_UP, "early_stop": early_stop, "pe": OUTAGE}) for early_stop in (False, True)
    )
    seconds: dict[str, list[float]] = {"raw": [], "letter": [], "early": [], "flower": []}
    note = ""
    for _ in range(3):
        seconds["raw"] += raw_rounds(letter.clients, num_parameters, rounds + WARM_UP)[WARM_UP:]
        ours = [untrained_rounds(config, num_parameters) for config in (letter, early)]
        if not np.array_equal(ours[0].theta, ours[1].theta) or any(
            len(record.recovered) < letter.clients for record in ours[0].records + ours[1].records
        ):
            raise BenchmarkError(f"rounds with {num_parameters:,} parameters: the two schedules end with different models")
        seconds["letter"] += ours[0].seconds
        seconds["early"] += ours[1].seconds
        try:
            seconds["flower"] += flower_rounds(letter.clients, num_parameters, min(rounds, 10) + WARM_UP)[WARM_UP - 1 :]
        except ImportError:
            note = "flwr is not installed"
    took = {name: median(times) for name, times in seconds.items() if times}
    place = f"round of M=10 d={num_parameters:,}"
    yield Figure(f"{place}, bare sockets (asyncio)", 1000 * took["raw"], "ms")
    yield Figure("  ours, the letter's schedule", took["letter"] / took["raw"], "x time", at_most=goals[0])
    yield Figure("  ours, early stop", took["early"] / took["raw"], "x time", at_most=goals[1])
    flower = took["flower"] / took["early"] if "flower" in took else None
    yield Figure("  Flower's simulation takes", flower, "x", at_least=flower_goal, note=note)


def _share(dataset: str, rounds: int, goal: float, data_root: str | None) -> Figure:
    """What a round spends outside training and evaluation: quantising, network, decoding, averaging."""
    config = load_config(
        None, {"rounds": rounds + WARM_UP, "dataset": dataset, "pe": OUTAGE} | ({"data_root": data_root} if data_root else {})
    )
    records = timed_rounds(config, GlobalModel(config), local_trainer).records
    share = median(
        sum(record.seconds[phase] for phase in ("quantise", "network", "decode", "aggregate")) / record.seconds["total"]
        for record in records
    )
    name = f"share of a {dataset} round, {median(record.seconds['total'] for record in records):.2f} s"
    return Figure(name, 100 * share, "%", at_most=goal)
