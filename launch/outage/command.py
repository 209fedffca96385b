"""The command `dncfl outage`."""

import json
from collections.abc import Mapping
from pathlib import Path

import click

from dncfl.common.config import FADING, Config, load_config
from dncfl.common.running import gone_at_signal
from dncfl.common.storage import make_place, writing
from dncfl.launch.first_time import tell_if_it_compiles
from dncfl.launch.options import config_argument, setting_options

LINKS = (*FADING, "pe")
FILES = ("outage.csv", "outage.png")


@click.command()
@config_argument
@setting_options("clients", *LINKS, "relay_slots", "field", "seed")
@click.option("--trials", type=click.IntRange(1), default=1_000_000, show_default=True, help="attempts that are drawn")
@click.option("--out", metavar="FOLDER", type=click.Path(path_type=Path), help="folder that gets outage.csv and outage.png")
@click.option("--json", "json_output", is_flag=True, help="print the figures as one JSON object on stdout")
def outage(config_file: Path | None, trials: int, out: Path | None, json_output: bool, **options: str | None) -> None:
    """Estimate what the code recovers in one attempt, without training.

    Several values with commas, as in --pe 0.05,0.1,0.2 or --snr 1,3,5, are gone through one by one. Up to 4 nodes the
    figures are exact, up to 12 rare failures are found by importance sampling, and Monte Carlo is always there. CONFIG is a
    TOML file of `dncfl run`, whose network is taken; options override it.
    """
    configs = _configs(config_file, {name: value for name, value in options.items() if value is not None})
    if out is not None:
        make_place(out, FILES)
    tell_if_it_compiles()
    with gone_at_signal():
        from rich.console import Console

        from dncfl.launch.outage.network import Network
        from dncfl.launch.outage.report import as_json, as_text, write_csv
        from dncfl.launch.outage.study import study

        if out is not None:
            from dncfl.launch.outage.picture import draw

    networks = [Network.of(config) for config in configs]
    console = Console(stderr=True)
    with console.status("getting ready") as status:
        points = study(networks, trials, configs[0].seed, status.update)
    if json_output:
        click.echo(json.dumps(as_json(points, configs[0].seed)))
    else:
        click.echo("\n".join(as_text(points)))
    if out is not None:
        with writing(f"the results in {out}"):
            write_csv(out / FILES[0], points)
            draw(out / FILES[1], points)
        console.print(f"written to {out}", highlight=False, markup=False, soft_wrap=True)


def _configs(config_file: Path | None, options: Mapping[str, str]) -> list[Config]:
    """A configuration for each value of the option that has several. Raises ConfigError and UsageError."""
    swept = [name for name in LINKS if name in options and "," in options[name] and "{" not in options[name]]
    if len(swept) > 1:
        raise click.UsageError(f"--{swept[0]} and --{swept[1]} both have several values: only one may")
    if not swept:
        return [load_config(config_file, options)]
    return [load_config(config_file, {**options, swept[0]: value}) for value in options[swept[0]].split(",")]
