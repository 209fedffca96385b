"""The engines of a sweep: ways to compute the rounds of runs. Another one is an entry of ENGINES."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dncfl.common.config import PAPER_CNN
from dncfl.launch.batched import SIDE_BY_SIDE
from dncfl.launch.sweep.runs import Run
from dncfl.launch.sweep.standing import Standing

Rounds = Callable[[Sequence[Standing]], None]
"""Computes what is left of some runs, in a worker, and adds a record for every round."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One way to compute runs."""

    rounds: Rounds
    grouped: Callable[[Sequence[Run]], list[list[Run]]]
    """which runs one worker computes together"""
    only_model: str | None = None
    """the one model that it knows, if there is only one"""
    uses_all_cores: bool = False
    """whether one run occupies the whole machine"""


def alone(runs: Sequence[Run]) -> list[list[Run]]:
    """Each run by itself."""
    return [[run] for run in runs]


def looped(standings: Sequence[Standing]) -> None:
    """The reference: one node after the other, in one process, without sockets."""
    from dncfl.launch.reference import over_channel, reference_rounds  # imports torch, as the next one does: only for workers
    from dncfl.launch.sweep.kept_model import KeptModel

    for standing in standings:
        config = standing.run.config
        for record, _ in reference_rounds(config, KeptModel(standing), over_channel(config)):
            standing.records.append(record)


def batched(standings: Sequence[Standing]) -> None:
    """The clients of all these runs trained side by side."""
    from dncfl.launch.batched.engine import BatchedRun, batched_rounds
    from dncfl.launch.reference import over_channel
    from dncfl.launch.sweep.kept_model import KeptModel
    from dncfl.server.global_model import load_test_set

    test = load_test_set(standings[0].run.config)
    runs = [
        BatchedRun(config=one.run.config, model=KeptModel(one, test), communicate=over_channel(one.run.config))
        for one in standings
    ]
    for place, record, _ in batched_rounds(runs):
        standings[place].records.append(record)


def sharing_training(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that start from the same model and data together: the batched engine trains them once until they part."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        same = tuple(getattr(run.config, name) for name in (*SIDE_BY_SIDE, "seed", "partition", "clients"))
        groups.setdefault(same, []).append(run)
    return list(groups.values())


def sockets(standings: Sequence[Standing]) -> None:
    """A PS and its nodes as processes that talk over sockets, as by `dncfl run`, without a run folder."""
    from dncfl.launch.sweep.over_sockets import run_over_sockets

    for standing in standings:
        run_over_sockets(standing)


ENGINES: Mapping[str, Engine] = {
    "looped": Engine(rounds=looped, grouped=alone),
    "batched": Engine(rounds=batched, grouped=sharing_training, only_model=PAPER_CNN),
    "sockets": Engine(rounds=sockets, grouped=alone, uses_all_cores=True),
}
