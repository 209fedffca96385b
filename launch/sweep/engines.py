"""The engines of a sweep: ways to compute the rounds of runs. Another one is an entry of ENGINES."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dncfl.common.config import Config
from dncfl.launch.batched import SIDE_BY_SIDE
from dncfl.launch.sweep.runs import Run
from dncfl.server.records import RoundRecord

Rounds = Callable[[Sequence[Config]], Iterator[tuple[int, RoundRecord]]]
"""Computes some runs, in a worker: every round with the position of its run, the rounds of one run in their order."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One way to compute runs."""

    rounds: Rounds
    grouped: Callable[[Sequence[Run]], list[list[Run]]]
    """which runs one worker computes together"""
    uses_all_cores: bool = False
    """whether one run occupies the whole machine"""


def alone(runs: Sequence[Run]) -> list[list[Run]]:
    """Each run by itself."""
    return [[run] for run in runs]


def looped(configs: Sequence[Config]) -> Iterator[tuple[int, RoundRecord]]:
    """The reference: one node after the other, in one process, without sockets."""
    from dncfl.launch.reference import over_channel, reference_rounds  # imports torch, as the next one does: only for workers
    from dncfl.server.global_model import GlobalModel

    for number, config in enumerate(configs):
        rounds = reference_rounds(config, GlobalModel(config), over_channel(config))
        yield from ((number, record) for record, _ in rounds)


def batched(configs: Sequence[Config]) -> Iterator[tuple[int, RoundRecord]]:
    """The clients of all these runs trained side by side."""
    from dncfl.launch.batched.engine import BatchedRun, batched_rounds
    from dncfl.launch.reference import over_channel
    from dncfl.server.global_model import GlobalModel, load_test_set

    test = load_test_set(configs[0])
    runs = [BatchedRun(config=config, model=GlobalModel(config, test), communicate=over_channel(config)) for config in configs]
    yield from ((number, record) for number, record, _ in batched_rounds(runs))


def sharing_training(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that start from the same model and data together: the batched engine trains them once until they part."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        same = tuple(getattr(run.config, name) for name in (*SIDE_BY_SIDE, "seed", "partition", "clients"))
        groups.setdefault(same, []).append(run)
    return list(groups.values())


def sockets(configs: Sequence[Config]) -> Iterator[tuple[int, RoundRecord]]:
    """A PS and its nodes as processes that talk over sockets, as by `dncfl run`, without a run folder."""
    from dncfl.launch.sweep.over_sockets import records_over_sockets

    for number, config in enumerate(configs):
        yield from ((number, record) for record in records_over_sockets(config))


ENGINES: Mapping[str, Engine] = {
    "looped": Engine(rounds=looped, grouped=alone),
    "batched": Engine(rounds=batched, grouped=sharing_training),
    "sockets": Engine(rounds=sockets, grouped=alone, uses_all_cores=True),
}
