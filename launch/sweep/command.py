"""The commands that carry out sweeps and draw them."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dncfl.common.errors import ConfigError, RunsFailed
from dncfl.common.running import gone_at_signal
from dncfl.launch.sweep.engines import ENGINES

if TYPE_CHECKING:
    from dncfl.launch.sweep.carry_out import Outcome
    from dncfl.launch.sweep.jobs import Executor
    from dncfl.launch.sweep.runs import Run


workers_option = click.option(
    "--workers", type=click.IntRange(1), help="jobs at a time; unless given as many as cores, or 1 where a run uses them all"
)
on_option = click.option(
    "--on", metavar="cores|ray|ray:ADDRESS", default="cores", show_default=True,
    help="where: the cores of this machine, a local Ray, or the Ray cluster at an address",
)  # fmt: skip


@click.command()
@click.argument("grid", metavar="GRID.toml", type=click.Path(path_type=Path))
@click.option("--out", metavar="FOLDER", required=True, type=click.Path(path_type=Path), help="folder of the sweep")
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default="looped",
    show_default=True,
    help="looped and batched compute runs in a process each, as `dncfl simulate`; sockets runs them for real, as `dncfl run`",
)
@workers_option
@on_option
@click.option("--json", "json_output", is_flag=True, help="print the outcome as one JSON object on stdout")
def sweep(grid: Path, out: Path, engine: str, workers: int | None, on: str, json_output: bool) -> None:
    """Compute all runs of a grid, each once, and make a table of them.

    GRID.toml has settings for all runs, in the words of a run's configuration, an [axes] table of settings with lists of
    values that are all combined, [[cases]] of settings that belong together, and seeds, a number or a list. The same command
    goes on with a sweep that was interrupted, each run after its last whole round, and takes in a grid that was changed.
    """
    with gone_at_signal():
        from rich.console import Console

        from dncfl.launch.sweep.carry_out import carry_out
        from dncfl.launch.sweep.display import SweepDisplay
        from dncfl.launch.sweep.grid import read_grid

    runs = read_grid(grid)
    executor = executor_on(on, workers, engine)
    ensure_data(runs)
    with SweepDisplay(Console(stderr=True)) as display:
        outcome = carry_out(runs, out, engine, executor, display)
    _report(outcome, out, json_output)


@click.command()
@click.argument("table", metavar="FOLDER_OR_TABLE", type=click.Path(path_type=Path))
@click.option("--x", type=click.Choice(["round", "slots", "bytes"]), default="round", show_default=True, help="what is below")
@click.option("--y", metavar="FIGURE", default="accuracy", show_default=True, help="what is drawn: a column of the table")
@click.option("--by", metavar="LABEL,…", help="a curve for each combination of these labels; all that vary unless given")
@click.option("--where", metavar="LABEL=VALUE", multiple=True, help="only these runs; several values of one label add up")
@click.option("--runs", "each_run", is_flag=True, help="draw every run, too, as a thin line")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="png, pdf or svg; beside the table unless given")
def plot(table: Path, x: str, y: str, by: str | None, where: tuple[str, ...], each_run: bool, out: Path | None) -> None:
    """Draw curves of a sweep: the mean over its seeds, with 95 % confidence.

    FOLDER_OR_TABLE is the folder of a sweep, or a table as .parquet or .csv. The band is that of Student's t for the mean, at
    each x by itself. Over slots or bytes every run is a step function, which keeps its last value until its next round is
    done; a curve spans where all of its runs have a value.
    """
    with gone_at_signal():
        from dncfl.launch.sweep.plot import draw

    names = None if by is None else [name.strip() for name in by.split(",")]
    click.echo(f"picture   {draw(table, x=x, y=y, by=names, where=where, each_run=each_run, out=out)}")


def executor_on(on: str, workers: int | None, engine: str) -> "Executor":
    """The executor that --on names. Raises ConfigError."""
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


def ensure_data(runs: "list[Run]") -> None:
    """Have the data sets at hand before anything runs. Raises DataError."""
    needed = {(run.config.dataset, run.config.data_root) for run in runs}
    if any(dataset != "digits" for dataset, _ in needed):
        with gone_at_signal():
            from dncfl.common.tasks.data import ensure_available

        for dataset, root in needed:
            ensure_available(dataset, root)


def _report(outcome: "Outcome", out: Path, json_output: bool) -> None:
    """The outcome on stdout, as one JSON object or as a few lines. Raises RunsFailed where runs did."""
    table = None if outcome.table is None else str(out / "table.parquet")
    summary: dict[str, Any] = {
        "folder": str(out),
        "table": table,
        "runs_before": outcome.num_before,
        "runs_computed": outcome.num_computed,
        "failures": [{"name": failure.run.name, "reason": failure.reason} for failure in outcome.failures],
    }
    if json_output:
        click.echo(json.dumps(summary))
    else:
        click.echo(f"runs      {outcome.num_before + outcome.num_computed} done, {outcome.num_computed} of them now")
        if table is not None:
            click.echo(f"table     {table}   (and table.csv; dncfl plot {out} draws it)")
    refuse_failures(outcome, out)


def refuse_failures(outcome: "Outcome", out: Path) -> None:
    """Raise RunsFailed where runs did, each of which has been told."""
    if outcome.failures:
        num_failed = len(outcome.failures)
        num_runs = outcome.num_before + outcome.num_computed + num_failed
        raise RunsFailed(f"{num_failed} of {num_runs} runs failed, see {out / 'failures.jsonl'}; the same command tries again")
