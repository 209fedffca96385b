"""The command that computes the letter's figures again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dncfl.common.config import load_config
from dncfl.common.running import gone_at_signal
from dncfl.launch.reproduce.letter import FIGURES, Curve, all_curves
from dncfl.launch.sweep.engines import ENGINES
from dncfl.launch.sweep.options import on_option, outcome_of, refuse_failures, workers_option
from dncfl.launch.sweep.runs import Run

if TYPE_CHECKING:
    from dncfl.launch.reproduce.comparison import Reproduction

SEEDS, QUICK_SEEDS = 12, 2
LETTER = {"dataset": "mnist"}
"""Beside the defaults, which are the letter's: ten clients, 20 rounds of five local epochs."""
QUICK = {"dataset": "digits", "rounds": 10}


@click.command()
@click.argument("figure", type=click.Choice([*(f"fig{number}" for number in FIGURES), "all"]), default="all")
@click.option("--out", metavar="FOLDER", required=True, type=click.Path(path_type=Path), help="where runs and figures go")
@click.option(
    "--seeds", type=click.IntRange(1), help=f"runs of each curve; {SEEDS}, or {QUICK_SEEDS} with --quick, unless given"
)
@click.option("--quick", is_flag=True, help="a small version: digits, and 10 rounds; some minutes")
@click.option("--engine", type=click.Choice(list(ENGINES)), default="batched", show_default=True, help="see `dncfl sweep`")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="where nodes train")
@click.option("--data-root", metavar="VALUE", help="folder with MNIST; a cache in your home unless given")
@workers_option
@on_option
@click.option("--json", "json_output", is_flag=True, help="print the table of distances as JSON on stdout")
def reproduce(
    figure: str,
    out: Path,
    seeds: int | None,
    quick: bool,
    engine: str,
    device: str,
    data_root: str | None,
    workers: int | None,
    on: str,
    json_output: bool,
) -> None:
    """Compute the letter's figures again, over several seeds, and lay its own points beside them.

    The folder gets a PNG and a PDF of each figure, curves.csv with all means and deviations, distances.csv, and the table of
    all runs. The same command goes on where it was interrupted, each run after its last whole round.
    """
    curves = [curve for curve in all_curves() if figure in ("all", f"fig{curve.figure}")]
    settings: dict[str, Any] = (QUICK if quick else LETTER) | {"device": device, "data_root": data_root}
    runs = _runs(curves, seeds or (QUICK_SEEDS if quick else SEEDS), settings)
    with gone_at_signal():
        from dncfl.launch.reproduce.report import print_distances, reproductions, write_report

    outcome = outcome_of(runs, out, engine, on, 1 if device == "cuda" and workers is None else workers)
    found: list[Reproduction] = [] if outcome.table is None else reproductions(curves, outcome.table)
    rows, files = write_report(out, found, f"{settings['dataset']}, {engine} engine")
    if json_output:
        click.echo(json.dumps(rows))
    else:
        print_distances(rows)
        if quick:
            click.echo("quick: on digits, where the letter has MNIST, so that its accuracies are other ones")
        click.echo("files     " + " ".join(map(str, files)))
    refuse_failures(outcome, out)


def _runs(curves: list[Curve], num_seeds: int, settings: dict[str, Any]) -> list[Run]:
    """The runs of all curves, seed by seed."""
    given = {name: value for name, value in settings.items() if value is not None}
    return [
        Run(curve.labels, load_config(None, given | curve.settings | {"seed": seed}))
        for seed in range(num_seeds)
        for curve in curves
    ]
