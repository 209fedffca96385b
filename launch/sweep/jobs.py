"""A job: runs that one worker computes together, and what comes of each."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from time import perf_counter
from traceback import format_exc
from typing import Protocol

from dncfl.common.errors import DncflError
from dncfl.launch.sweep.engines import ENGINES
from dncfl.launch.sweep.runs import Run
from dncfl.server.records import RoundRecord


@dataclass(frozen=True)
class Job:
    """Runs that one worker computes together."""

    engine: str
    """a name in ENGINES"""
    runs: tuple[Run, ...]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run with all its rounds."""

    run: Run
    engine: str
    records: tuple[RoundRecord, ...]
    num_parameters: int
    """d, the length of θ"""
    seconds: float
    """what the job took, shared evenly by its runs"""


@dataclass(frozen=True)
class Failed:
    """A run that did not end well."""

    run: Run
    reason: str
    """its first line says it all; a traceback may follow"""


Result = Finished | Failed


class Executor(Protocol):
    """Where jobs are computed."""

    def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
        """What comes of each job, in the order in which they end. Closing the iterator ends the workers at once."""


def jobs_of(engine: str, runs: Sequence[Run]) -> list[Job]:
    """The runs in jobs, as the engine wants them together."""
    return [Job(engine, tuple(group)) for group in ENGINES[engine].grouped(runs)]


def compute(job: Job) -> list[Result]:
    """Compute a job, in the process of a worker. A failure is a result, too."""
    started = perf_counter()
    rounds: list[list[RoundRecord]] = [[] for _ in job.runs]
    failure = "its engine ended before its last round"
    try:
        for number, record in ENGINES[job.engine].rounds([run.config for run in job.runs]):
            rounds[number].append(record)
        sizes = [_num_parameters(run) for run in job.runs]
    except DncflError as error:
        failure = str(error)
    except (Exception, SystemExit) as error:  # a user's model may raise anything
        failure = f"{type(error).__name__}: {error}\n{format_exc()[-4000:]}"
    else:
        seconds = (perf_counter() - started) / len(job.runs)
        return [
            Finished(run=run, engine=job.engine, records=tuple(records), num_parameters=size, seconds=seconds)
            if len(records) == run.config.rounds
            else Failed(run, failure)
            for run, records, size in zip(job.runs, rounds, sizes, strict=True)
        ]
    return failed(job, failure)


def failed(job: Job, reason: str) -> list[Result]:
    """The results of a job that came to nothing."""
    return [Failed(run, reason) for run in job.runs]


def _num_parameters(run: Run) -> int:
    from dncfl.common.tasks.model import build_model, to_vector  # imports torch, which only workers need

    return int(to_vector(build_model(run.config.model, run.config.seed, "cpu")).size)
