"""The command `dncfl theory`."""

import json
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import click

from dncfl.common.config import Config, load_config
from dncfl.common.errors import ConfigError
from dncfl.common.running import gone_at_signal
from dncfl.common.storage import make_place, writing
from dncfl.common.theory import Learning, dominant_outage
from dncfl.launch.options import setting_options
from dncfl.launch.theory.asked import Theory
from dncfl.launch.theory.report import as_json, as_text, write_csv

FILES = ("theory.csv", "theory.png")

SMALLEST, LARGEST = 1e-30, 1e30
"""Constants of the learning that are far from overflow."""

F = TypeVar("F", bound=Callable[..., Any])


def _number(_: click.Context, option: click.Parameter, number: float | None) -> float | None:
    """A number that is one: to click, nan lies in every range."""
    if number is not None and isnan(number):
        raise click.BadParameter("nan: must be a number", param=option)
    return number


def _numbers(_: click.Context, option: click.Parameter, text: str) -> tuple[float, ...]:
    """One number of at least 0, or several with commas between them."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 <= number <= LARGEST for number in numbers):
        rule = f"must be a number from 0 to {LARGEST:g}, or one for each node with commas between"
        raise click.BadParameter(f"{text!r}: {rule}", param=option)
    return numbers


def _constant(flag: str, smallest: float, help_text: str) -> Callable[[F], F]:
    number = click.FloatRange(smallest, LARGEST)
    return click.option(flag, type=number, callback=_number, default=1.0, show_default=True, help=help_text)


@click.command()
@setting_options("clients", "snr", "rate", "sigma2", "pe", "rounds", "batch_size")
@click.option(
    "--q",
    type=click.FloatRange(0, 1, max_open=True),
    callback=_number,
    help="outage of a message; P_e^(2M-1) unless given",
)
@click.option("--local-steps", type=click.IntRange(1, 10**9), default=5, show_default=True, help="SGD steps I in a round")
@_constant("--smoothness", SMALLEST, "Lipschitz constant L of ∇F")
@_constant("--gap", 0, "F(θ_0) - F*")
@_constant("--gradient-variance", 0, "σ² of one sample's gradient; not the fading's")
@click.option(
    "--dissimilarity", callback=_numbers, default="1", show_default=True, help="D_m of all nodes, or M values with commas"
)
@click.option(
    "--quantisation-error", callback=_numbers, default="1", show_default=True, help="J of all nodes, or M values with commas"
)
@click.option("--out", metavar="FOLDER", type=click.Path(path_type=Path), help="folder that gets theory.csv and theory.png")
@click.option("--json", "json_output", is_flag=True, help="print the figures as one JSON object on stdout")
def theory(
    q: float | None,
    local_steps: int,
    smoothness: float,
    gap: float,
    gradient_variance: float,
    dissimilarity: tuple[float, ...],
    quantisation_error: tuple[float, ...],
    out: Path | None,
    json_output: bool,
    **options: object,
) -> None:
    """Print what the letter says in theory: the outage of a message, the nodes that count, and the bound of Theorem 1.

    --q takes the outage that `dncfl outage` finds. The constants of the learning are 1 unless given: they depend on model and
    data, and nobody knows them beforehand.
    """
    config = load_config(None, {name: value for name, value in options.items() if value is not None})
    for name, values in (("dissimilarity", dissimilarity), ("quantisation-error", quantisation_error)):
        if len(values) not in (1, config.clients):
            raise click.UsageError(f"--{name} has {len(values)} values: must be one, or {config.clients}, one for each node")
    learning = Learning(
        smoothness=smoothness,
        gap=gap,
        gradient_variance=gradient_variance,
        batch_size=config.batch_size,
        dissimilarities=dissimilarity,
        quantisation_errors=quantisation_error,
        local_steps=local_steps,
    )
    pe = _one_outage(config)
    loss = dominant_outage(pe, config.clients) if q is None else q
    if loss == 1:
        raise ConfigError(f"P_e = {pe:g}: must be less than 1, or nothing is ever recovered")
    asked = Theory(num_clients=config.clients, pe=pe, q=loss, q_is_given=q is not None, rounds=config.rounds, learning=learning)
    if out is not None:
        make_place(out, FILES)
    click.echo(json.dumps(as_json(asked)) if json_output else "\n".join(as_text(asked)))
    if out is not None:
        _write(out, asked)


def _one_outage(config: Config) -> float:
    """P_e. Raises ConfigError where links differ."""
    from dncfl.launch.outage.network import Network  # imports compiled functions

    network = Network.of(config)
    if not network.equal_links:
        raise ConfigError("the letter's theory has one outage probability for all links: give one number")
    return network.direct


def _write(folder: Path, asked: Theory) -> None:
    with gone_at_signal():
        from dncfl.launch.theory.picture import draw, rounds_drawn

    with writing(f"the results in {folder}"):
        write_csv(folder / FILES[0], asked, rounds_drawn(asked))
        draw(folder / FILES[1], asked)
    click.echo(f"written to {folder}", err=True)
