"""A job: runs that one worker computes together, and what comes of each."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from traceback import format_exc
from typing import Protocol

from dncfl.common.errors import DncflError
from dncfl.launch.sweep.engines import ENGINES
from dncfl.launch.sweep.runs import Run
from dncfl.launch.sweep.standing import Standing
from dncfl.server.records import RoundRecord

LOOK_SECONDS = 1.0
"""How often whoever waits for jobs may look how far they are."""


@dataclass(frozen=True)
class Job:
    """Runs that one worker computes together."""

    engine: str
    """a name in ENGINES"""
    runs: tuple[Run, ...]
    unfinished: Path | None = None
    """the folder where its runs are kept while they are unfinished, if that is on the worker's machine"""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run with all its rounds."""

    run: Run
    engine: str
    records: tuple[RoundRecord, ...]
    seconds: float
    """what the job took that finished it, shared evenly by its runs"""
    model_sha256: str | None = None
    """the hash of the final θ; None of a run that was stored before this was"""


@dataclass(frozen=True)
class Failed:
    """A run that did not end well."""

    run: Run
    reason: str
    """its first line says it all; a traceback may follow"""


Result = Finished | Failed


class Executor(Protocol):
    """Where jobs are computed."""

    is_here: bool
    """whether all workers are on this machine"""

    def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
        """What comes of each job, in the order in which they end. Closing the iterator ends the workers at once.

        Where no job ends for LOOK_SECONDS, nothing comes, so that one may look how far they are.
        """


def compute(job: Job) -> list[Result]:
    """Compute a job, or what is left of it, in the process of a worker. A failure is a result, too."""
    started = perf_counter()
    failure = "its engine ended before its last round"
    try:
        standings = [Standing.of(run, job.engine, job.unfinished) for run in job.runs]
        ENGINES[job.engine].rounds(standings)
    except DncflError as error:
        failure = str(error)
    except (Exception, SystemExit) as error:  # a user's model may raise anything
        failure = f"{type(error).__name__}: {error}\n{format_exc()[-4000:]}"
    else:
        seconds = (perf_counter() - started) / len(job.runs)
        return [_finished(one, job.engine, seconds) or Failed(one.run, failure) for one in standings]
    return failed(job, failure)


def _finished(one: Standing, engine: str, seconds: float) -> Finished | None:
    """The run if all its rounds are done."""
    from dncfl.common.tasks.model import sha256_of  # imports torch, which the worker has by now

    if one.theta is None or len(one.records) != one.run.config.rounds:
        return None
    return Finished(
        run=one.run,
        engine=engine,
        records=tuple(one.records),
        seconds=seconds,
        model_sha256=sha256_of(one.theta),
    )


def failed(job: Job, reason: str) -> list[Result]:
    """The results of a job that came to nothing."""
    return [Failed(run, reason) for run in job.runs]
