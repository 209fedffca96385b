"""Whole rounds without training: the real processes, sockets and protocol, with made-up updates and no test of the model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import numpy as np

from dncfl.common.config import Config, load_config
from dncfl.common.errors import BenchmarkError
from dncfl.common.payload import Payload
from dncfl.common.running import run_until_signal
from dncfl.common.scheme import network_code
from dncfl.common.tasks.model import Vector
from dncfl.common.tasks.training import Evaluation
from dncfl.common.trace import AttemptTrace
from dncfl.launch.bench.coding import LARGE, OUTAGE, SMALL
from dncfl.launch.bench.flower import flower_rounds
from dncfl.launch.bench.raw_round import raw_rounds
from dncfl.launch.bench.timing import Figure
from dncfl.launch.local import LocalNodes
from dncfl.launch.serving import serve_nodes
from dncfl.node.trainer import LocalUpdate, MakeTrainer, encode_update, local_trainer
from dncfl.server.aggregation import aggregate
from dncfl.server.global_model import GlobalModel, Model, Step
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord

SPREAD = 0.03
"""Standard deviation of made-up updates, well within the quantiser's bounds."""

WARM_UP = 3
"""Rounds at each start that are not counted: memory is touched for the first time."""


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
        self.rounds_done = 0

    def take(self, step: Step, round: int) -> None:
        self.theta, self.rounds_done = step.theta, round

    @property
    def num_parameters(self) -> int:
        return self.theta.size

    def step(self, payloads: Mapping[int, Payload], round: int, before_batch: Callable[[], None] = lambda: None) -> Step:
        started = perf_counter()
        theta = aggregate(self._config, self.theta, payloads, round)
        untested = Evaluation(accuracy=0.0, loss=0.0, recall=())
        return Step(theta=theta, test=untested, aggregate_seconds=perf_counter() - started, evaluate_seconds=0.0)


@dataclass(frozen=True)
class Rounds:
    """What rounds took, without the first ones, and the model that they ended with."""

    seconds: list[float]
    """from each round's end to the next one's"""
    records: list[RoundRecord]
    theta: Vector


def untrained_rounds(config: Config, num_parameters: int, look: Callable[[], None] = lambda: None) -> Rounds:
    """Rounds with made-up updates; `look` is called once, after the second round."""
    return _rounds(config, UntestedModel(config, num_parameters), partial(NoTraining, num_parameters), look)


def trained_rounds(config: Config) -> Rounds:
    """Rounds as `dncfl run` has them, without a run folder."""
    return _rounds(config, GlobalModel(config), local_trainer, lambda: None)


def _rounds(config: Config, model: Model, make_trainer: MakeTrainer, look: Callable[[], None]) -> Rounds:
    ends: list[float] = []
    records: list[RoundRecord] = []

    def record(round_record: RoundRecord, _attempts: Sequence[AttemptTrace], _theta: Vector) -> None:
        ends.append(perf_counter())
        records.append(round_record)
        if len(records) == 2:
            look()

    server = ServerProcess(config, model, record, Observer())
    run_until_signal(serve_nodes(server, LocalNodes(config, "warning", make_trainer)))
    return Rounds(np.diff(ends[WARM_UP - 1 :]).tolist(), records[WARM_UP:], model.theta)


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
    records = trained_rounds(config).records
    share = median(
        sum(record.seconds[phase] for phase in ("quantise", "network", "decode", "aggregate")) / record.seconds["total"]
        for record in records
    )
    name = f"share of a {dataset} round, {median(record.seconds['total'] for record in records):.2f} s"
    return Figure(name, 100 * share, "%", at_most=goal)
