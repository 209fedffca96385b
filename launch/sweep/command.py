"""The commands that carry out sweeps and draw them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dncfl.common.running import gone_at_signal
from dncfl.launch.sweep.engines import ENGINES
from dncfl.launch.sweep.options import on_option, outcome_of, refuse_failures, workers_option

if TYPE_CHECKING:
    from dncfl.launch.sweep.carry_out import Outcome


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
        from dncfl.launch.sweep.grid import read_grid

    _report(outcome_of(read_grid(grid), out, engine, on, workers), out, json_output)


@click.command()
@click.argument("table", metavar="FOLDER_OR_TABLE", type=click.Path(path_type=Path))
@click.option("--x", type=click.Choice(["round", "slots", "bytes"]), default="round", show_default=True, help="what is below")
@click.option("--y", metavar="FIGURE", default="accuracy", show_default=True, help="what is drawn: a column of the table")
@click.option(
    "--by", metavar="LABEL,…", help="a curve for each combination of these labels, or of seed; unless given, of all that vary"
)
@click.option(
    "--where", metavar="LABEL=VALUE", multiple=True, help="only these runs; given twice for one label, those of both values"
)
@click.option("--runs", "each_run", is_flag=True, help="draw every run, too, as a thin line")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="png, pdf or svg; beside the table unless given")
def plot(table: Path, x: str, y: str, by: str | None, where: tuple[str, ...], each_run: bool, out: Path | None) -> None:
    """Draw curves of a sweep: the mean over its seeds, with 95 % confidence.

    FOLDER_OR_TABLE is the folder of a sweep, or a table as .parquet or .csv. The band is that of Student's t for the mean, at
    each x by itself; a mean over more than seeds has none, and of fewer than four seeds each run is drawn instead. Over slots
    or bytes every run is a step function, which keeps its last value until its next round is done;
    a curve spans where all of its runs have a value.
    """
    with gone_at_signal():
        from dncfl.launch.sweep.plot import draw

    names = None if by is None else [name.strip() for name in by.split(",")]
    click.echo(f"picture   {draw(table, x=x, y=y, by=names, where=where, each_run=each_run, out=out)}")


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
