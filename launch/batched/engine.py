"""Several runs round by round, side by side, with all their clients' training done at once.

Channel, code, quantiser, partition, order of samples and first model are drawn as in a run over sockets; the dropout masks
are drawn otherwise, and sums are taken in another order. So the figures agree with the reference's in distribution, not in
bits. Runs that have come to the same θ with the same seed and partition share their training, until they part: under other
links or by another method the same nodes often count.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from dncfl.common.config import PAPER_CNN, Config
from dncfl.common.errors import ConfigError
from dncfl.common.running import uninterrupted
from dncfl.common.tasks.data import load_dataset
from dncfl.common.tasks.partition import Indices
from dncfl.common.trace import AttemptTrace
from dncfl.launch.batched import SIDE_BY_SIDE
from dncfl.launch.batched.cohort import Client, Cohort, Trained
from dncfl.launch.reference import Communication, round_outcome
from dncfl.node.trainer import LocalUpdate, encode_update, recipe_of, refuse_unless_finite
from dncfl.server.global_model import GlobalModel
from dncfl.server.records import RoundRecord


@dataclass(frozen=True, kw_only=True)
class BatchedRun:
    """One of the runs: its model, and the communication of each round."""

    config: Config
    model: GlobalModel
    communicate: Callable[[int], Communication]


def batched_rounds(runs: Sequence[BatchedRun]) -> Iterator[tuple[int, RoundRecord, list[AttemptTrace]]]:
    """The rounds of some runs, each with the run's place among them; round r of all comes before round r + 1 of any.

    Each run goes on after the rounds that its model has done, which takes each step once its record has been taken; a signal
    waits for both. Raises ConfigError for a model that this engine does not know, or for runs that differ in what they must
    have in common.
    """
    configs = [run.config for run in runs]
    _require_alike(configs)
    dataset = load_dataset(configs[0].dataset, configs[0].data_root, train=True)
    labels = dataset.labels.numpy()
    shares = [config.partition_scheme.split(labels, config.clients, config.seed) for config in configs]
    cohort = Cohort(dataset.all_samples(configs[0].device), recipe_of(configs[0]))
    for round in range(1 + min(run.model.rounds_done for run in runs), configs[0].rounds + 1):
        due = [place for place, run in enumerate(runs) if run.model.rounds_done < round]
        started = perf_counter()
        communications = {place: runs[place].communicate(round) for place in due}
        decoded = perf_counter()
        trained = _train(cohort, runs, shares, communications)
        seconds = (perf_counter() - decoded) / sum(map(len, trained.values()))
        for place, communication in communications.items():
            run, share = runs[place], shares[place]
            updates = {m: _update(run, m, one, round, len(share[m]), seconds) for m, one in trained[place].items()}
            step, record = round_outcome(run.config, run.model, communication, updates, (decoded - started) / len(due))
            with uninterrupted():
                yield place, record, communication.traces
                run.model.take(step, round)


def _train(
    cohort: Cohort,
    runs: Sequence[BatchedRun],
    shares: Sequence[Sequence[Indices]],
    communications: Mapping[int, Communication],
) -> dict[int, dict[int, Trained]]:
    """The trained clients of each run, by place and number; what is the same training in several runs is done once."""
    clients: dict[tuple[object, ...], Client] = {}
    wanted: dict[int, dict[int, tuple[object, ...]]] = {}
    for place, communication in communications.items():
        config, theta = runs[place].config, runs[place].model.theta
        start = (config.seed, config.partition, config.clients, theta.tobytes())
        wanted[place] = {m: (*start, m) for m in communication.present}
        for m, key in wanted[place].items():
            if key not in clients:
                indices = shares[place][m]
                clients[key] = Client(theta=theta, indices=indices, seed=config.seed, round=communication.round, number=m)
    trained = dict(zip(clients, cohort.train(list(clients.values())), strict=True))
    return {place: {m: trained[key] for m, key in keys.items()} for place, keys in wanted.items()}


def _update(run: BatchedRun, client: int, trained: Trained, round: int, num_samples: int, seconds: float) -> LocalUpdate:
    started = perf_counter()
    config, delta = run.config, trained.theta - run.model.theta
    refuse_unless_finite(run.model.named(delta), trained.loss, client=client, round=round, lr=config.lr)
    message, num_clipped = encode_update(config, client, delta, run.model.tensor_sizes, round=round, num_samples=num_samples)
    return LocalUpdate(
        message=message,
        train_loss=trained.loss,
        num_clipped=num_clipped,
        train_seconds=seconds,
        encode_seconds=perf_counter() - started,
    )


def _require_alike(configs: Sequence[Config]) -> None:
    for name in SIDE_BY_SIDE:
        if len(values := {getattr(config, name) for config in configs}) > 1:
            raise ConfigError(f"{name} = {' and '.join(map(str, values))}: runs side by side must have it in common")
    if (model := configs[0].model) != PAPER_CNN:
        raise ConfigError(f"model = {model}: the batched engine computes {PAPER_CNN} only; use --engine looped")
