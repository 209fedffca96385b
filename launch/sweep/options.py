"""What the commands that compute many runs have in common: where to compute them, and what becomes of them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dncfl.common.errors import ConfigError, RunsFailed
from dncfl.common.running import gone_at_signal
from dncfl.launch.first_time import tell_if_it_compiles
from dncfl.launch.sweep.engines import ENGINES
from dncfl.launch.sweep.runs import Run

if TYPE_CHECKING:
    from dncfl.launch.sweep.carry_out import Outcome
    from dncfl.launch.sweep.jobs import Executor


workers_option = click.option(
    "--workers", type=click.IntRange(1), help="jobs at a time; unless given as many as cores, or 1 where a run uses them all"
)
on_option = click.option(
    "--on", metavar="cores|ray|ray:ADDRESS", default="cores", show_default=True,
    help="where: the cores of this machine, a local Ray, or the Ray cluster at an address",
)  # fmt: skip


def outcome_of(runs: Sequence[Run], out: Path, engine: str, on: str, workers: int | None) -> "Outcome":
    """Compute what is missing of these runs in a folder, by the executor that --on names, and show how it goes on.

    Raises ConfigError for what --on cannot be or the engine cannot compute, NetworkError for a cluster that cannot be joined,
    DataError where data are missing, StorageError for the folder.
    """
    executor = _executor_on(on, workers, engine)
    only = ENGINES[engine].only_model
    if only is not None and (others := {run.config.model for run in runs} - {only}):
        raise ConfigError(f"--engine {engine}: computes {only} only, not {', '.join(sorted(others))}; use --engine looped")
    _ensure_data(runs)
    tell_if_it_compiles()
    with gone_at_signal():
        from rich.console import Console

        from dncfl.launch.sweep.carry_out import carry_out
        from dncfl.launch.sweep.display import SweepDisplay

    with SweepDisplay(Console(stderr=True)) as display:
        return carry_out(runs, out, engine, executor, display)


def _executor_on(on: str, workers: int | None, engine: str) -> "Executor":
    place, colon, address = on.partition(":")
    if place not in ("cores", "ray") or (place == "cores" and colon) or (colon and not address):
        raise ConfigError(f"--on {on}: must be cores, ray or ray:ADDRESS")
    if workers is None and not address:
        workers = 1 if ENGINES[engine].uses_all_cores else len(os.sched_getaffinity(0))
    if place == "ray":
        from dncfl.launch.sweep.on_ray import OnRay

        return OnRay(workers, address or None)
    from dncfl.launch.sweep.on_cores import Cores

    assert workers is not None
    return Cores(workers)


def _ensure_data(runs: Sequence[Run]) -> None:
    """Have the data sets at hand before anything runs."""
    needed = {(run.config.dataset, run.config.data_root) for run in runs}
    if any(dataset != "digits" for dataset, _ in needed):
        with gone_at_signal():
            from dncfl.common.tasks.data import ensure_available

        for dataset, root in needed:
            ensure_available(dataset, root)


def refuse_failures(outcome: "Outcome", out: Path) -> None:
    """Raise RunsFailed where runs did, each of which has been told."""
    if outcome.failures:
        num_failed = len(outcome.failures)
        num_runs = outcome.num_before + outcome.num_computed + num_failed
        raise RunsFailed(f"{num_failed} of {num_runs} runs failed, see {out / 'failures.jsonl'}; the same command tries again")
