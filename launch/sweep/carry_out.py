"""A sweep from its list of runs to its table, whatever the list comes from."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from dncfl.launch.sweep.display import SweepDisplay
from dncfl.launch.sweep.engines import ENGINES
from dncfl.launch.sweep.folder import CSV, PARQUET, SweepFolder
from dncfl.launch.sweep.jobs import Executor, Failed, Finished, Job, Result
from dncfl.launch.sweep.runs import Run
from dncfl.launch.sweep.table import make_table


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is there after a sweep."""

    table: pl.DataFrame | None
    """one row per finished run and round, see `dncfl.launch.sweep.table`; None without a finished run"""
    failures: Sequence[Failed]
    num_before: int
    """runs that were there before"""
    num_computed: int
    """runs that were computed now, without those that failed"""


def carry_out(runs: Sequence[Run], path: Path, engine: str, executor: Executor, display: SweepDisplay) -> Outcome:
    """Complete these runs in a sweep's folder, and write their table.

    Runs that are there are not computed again, and runs that are the same but for their labels are computed once; so the
    same call goes on with a sweep that was interrupted. A run that fails harms no other, and is tried again by the next call.
    The table is written also where the sweep is interrupted. Raises StorageError, and what the executor raises.
    """
    with SweepFolder.held(path) as folder:
        wanted = {run.digest: run for run in runs}
        stored = {digest: finished for digest, run in wanted.items() if (finished := folder.finished(run))}
        num_before, failures = len(stored), list[Failed]()
        pending = [run for digest, run in wanted.items() if digest not in stored]
        waiting = {run.digest: run for run in pending}
        display.begin(num_before, pending, folder.rounds_kept(pending, engine), folder.num_others(runs))
        try:
            with closing(_results(pending, engine, executor, folder.unfinished if executor.is_here else None)) as results:
                for result in results:
                    if isinstance(result, Finished):
                        folder.add(result)
                        stored[result.run.digest] = result
                    elif isinstance(result, Failed):
                        folder.note(result)
                        failures.append(result)
                    if result is not None:
                        del waiting[result.run.digest]
                        display.ended(result)
                    display.look(folder.rounds_kept(list(waiting.values()), engine))
        finally:
            table = _write_table(folder, [replace(stored[run.digest], run=run) for run in runs if run.digest in stored])
        return Outcome(table=table, failures=failures, num_before=num_before, num_computed=len(stored) - num_before)


def _results(
    runs: Sequence[Run], engine: str, executor: Executor, unfinished: Path | None
) -> Generator[Result | None, None, None]:
    """The result of each run, and None where there is time to look how far they are.

    Those of a job of several that failed are tried once more, each alone: one may be to blame.
    """
    again: list[Run] = []
    groups = ENGINES[engine].grouped(runs)
    for together in _closed(executor, [Job(engine, tuple(group), unfinished) for group in groups]):
        if not together:
            yield None
        for result in together:
            if isinstance(result, Failed) and len(together) > 1:
                again.append(result.run)
            else:
                yield result
    for results in _closed(executor, [Job(engine, (run,), unfinished) for run in again]):
        yield results[0] if results else None


def _closed(executor: Executor, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
    if jobs:
        with closing(executor.results(jobs)) as results:
            yield from results


def _write_table(folder: SweepFolder, finished: Sequence[Finished]) -> pl.DataFrame | None:
    if not finished:
        return None
    table = make_table(finished)
    folder.replace(PARQUET, table.write_parquet)
    folder.replace(CSV, table.write_csv)
    return table
