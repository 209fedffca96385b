"""The command `dncfl theory`."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isnan
from pathlib import Path
from typing import Any, TypeVar

import click

from dncfl.common.config import Config, load_config
from dncfl.common.errors import ConfigError
from dncfl.common.running import gone_at_signal
from dncfl.common.theory import (
    Bound,
    Learning,
    convergence_bound,
    dominant_outage,
    least_rounds,
    mean_participants,
    most_local_steps,
    participants_bound,
    step_size,
)
from dncfl.launch.options import setting_options
from dncfl.launch.outage.network import Network
from dncfl.launch.results import make_place, writing_to

FILES = ("theory.csv", "theory.png")

SMALLEST, LARGEST = 1e-30, 1e30
"""Constants of the learning that are far from overflow."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Theory:
    """What is asked, and K̄ and K*, which all else follows from."""

    num_clients: int
    pe: float
    q: float
    q_is_given: bool
    rounds: int
    learning: Learning

    @property
    def participants(self) -> float:
        """K*."""
        return participants_bound(self.q, self.num_clients)

    def condition_holds(self, rounds: int) -> bool:
        """Whether I is small enough for Theorem 1 after this many rounds."""
        return self.learning.local_steps <= most_local_steps(rounds, self.participants)

    def bound(self, rounds: int) -> Bound:
        """The right-hand side after this many rounds."""
        return convergence_bound(self.learning, rounds, self.participants)


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
    click.echo(json.dumps(_as_json(asked)) if json_output else "\n".join(_as_text(asked)))
    if out is not None:
        _write(out, asked)


def _one_outage(config: Config) -> float:
    """P_e. Raises ConfigError where links differ."""
    network = Network.of(config)
    if not network.equal_links:
        raise ConfigError("the letter's theory has one outage probability for all links: give one number")
    return network.direct


def _as_text(asked: Theory) -> Iterator[str]:
    learning, rounds = asked.learning, asked.rounds
    participants, bound = asked.participants, asked.bound(rounds)
    source = "as given" if asked.q_is_given else f"P_e^{2 * asked.num_clients - 1}"
    yield f"{asked.num_clients} nodes, P_e = {asked.pe:.5g}"
    yield f"  {asked.q:<10.4g} outage q of a message, {source}"
    yield f"  {mean_participants(asked.q, asked.num_clients):<10.4g} K̄ = 1/E[1/|W|], exactly (Lemma 1)"
    yield f"  {participants:<10.4g} K*, at most K̄ (Lemma 1)"
    yield f"Theorem 1, T = {rounds} rounds of I = {learning.local_steps} local steps"
    yield f"  {step_size(learning, rounds, participants):<10.4g} step size η = (K*/TI)^(1/2) / 8L; the letter misprints it"
    yield from _condition(asked)
    yield "right-hand side, a bound on the mean of ‖∇F‖² over the rounds"
    yield f"  {bound.start:<10.4g} from the start, F(θ_0) - F*"
    yield f"  {bound.quantisation:<10.4g} from the quantisation, J"
    yield f"  {bound.gradient_noise:<10.4g} from the gradient's noise, σ²/b"
    yield f"  {bound.dissimilarity:<10.4g} from the dissimilarity of the data, D"
    yield f"  {bound.total:<10.4g} in all"


def _condition(asked: Theory) -> Iterator[str]:
    most = most_local_steps(asked.rounds, asked.participants)
    if asked.condition_holds(asked.rounds):
        yield f"  {most:<10.4g} most local steps, T^(1/3)/K*: the theorem holds"
        return
    needed = ceil(least_rounds(asked.learning.local_steps, asked.participants))
    yield f"  {most:<10.4g} most local steps, T^(1/3)/K*: the theorem does NOT hold for I = {asked.learning.local_steps}"
    yield f"  {needed:<10,} rounds are the fewest for which it would, (I K*)^3"


def _as_json(asked: Theory) -> dict[str, object]:
    bound = asked.bound(asked.rounds)
    return {
        "clients": asked.num_clients,
        "pe": asked.pe,
        "q": asked.q,
        "mean_participants": mean_participants(asked.q, asked.num_clients),
        "participants_bound": asked.participants,
        "rounds": asked.rounds,
        "local_steps": asked.learning.local_steps,
        "step_size": step_size(asked.learning, asked.rounds, asked.participants),
        "most_local_steps": most_local_steps(asked.rounds, asked.participants),
        "least_rounds": least_rounds(asked.learning.local_steps, asked.participants),
        "condition_holds": asked.condition_holds(asked.rounds),
        "terms": vars(bound),
        "bound": bound.total,
    }


def _write(folder: Path, asked: Theory) -> None:
    with gone_at_signal():
        from dncfl.launch.theory.picture import draw, rounds_drawn

    with writing_to(folder):
        _write_csv(folder / FILES[0], asked, rounds_drawn(asked))
        draw(folder / FILES[1], asked)
    click.echo(f"written to {folder}", err=True)


def _write_csv(path: Path, asked: Theory, rounds_drawn: Sequence[int]) -> None:
    with path.open("x", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rounds", "condition_holds", *vars(asked.bound(1)), "bound"])
        for rounds in rounds_drawn:
            bound = asked.bound(rounds)
            writer.writerow([rounds, asked.condition_holds(rounds), *vars(bound).values(), bound.total])
