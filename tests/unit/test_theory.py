"""The letter's formulas against brute force, hand-made numbers and a problem that can be solved."""

import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dncfl.common.errors import ConfigError, StorageError
from dncfl.common.theory import (
    Learning,
    convergence_bound,
    dominant_outage,
    least_rounds,
    mean_participants,
    most_local_steps,
    participants_bound,
    step_size,
)
from dncfl.launch.cli import cli

NOISELESS = Learning(
    smoothness=1000.0,
    gap=500.0,
    gradient_variance=0.0,
    batch_size=1,
    dissimilarities=0.0,
    quantisation_errors=0.0,
    local_steps=1,
)


def test_the_dominant_outage() -> None:
    assert dominant_outage(0.1, 2) == pytest.approx(1e-3)
    assert dominant_outage(0.3, 4) == pytest.approx(2.187e-4)


@pytest.mark.parametrize("num_clients", range(1, 7))
@pytest.mark.parametrize("q", [Fraction(0), Fraction(1, 1000), Fraction(1, 3), Fraction(99, 100)])
def test_mean_participants_is_that_of_all_sets(num_clients: int, q: Fraction) -> None:
    """E[1/|W|] over all 2^M sets W but the empty one, in fractions."""
    total, mean = Fraction(0), Fraction(0)
    for members in product((False, True), repeat=num_clients):
        size = sum(members)
        if size:
            probability = (1 - q) ** size * q ** (num_clients - size)
            total += probability
            mean += probability / size
    assert mean_participants(float(q), num_clients) == pytest.approx(float(total / mean), rel=1e-12)


def test_the_bound_on_participants_is_one() -> None:
    outages = np.concatenate(
        [[0.0], np.geomspace(1e-12, 0.1, 30), np.linspace(0.11, 0.99, 50), 1 - np.geomspace(1e-9, 1e-2, 8)]
    )
    for num_clients in range(1, 65):
        for q in outages.tolist():
            exact, bound = mean_participants(q, num_clients), participants_bound(q, num_clients)
            assert 0 < bound <= exact <= num_clients * (1 + 1e-12)
            assert (bound == exact) == (num_clients == 1 and q == 0), "it is equal there alone"


def test_the_limits_of_participants() -> None:
    assert mean_participants(0.0, 10) == 10
    assert participants_bound(0.0, 10) == 5.5
    nearly = 1 - 1e-9
    assert mean_participants(nearly, 10) == pytest.approx(1, rel=1e-6)
    assert participants_bound(nearly, 10) == pytest.approx(11 * 1e-9 * 1e-8 / 2, rel=1e-6)


@pytest.mark.parametrize("q", [-0.1, 1.0, 1.5, float("nan")])
def test_an_impossible_outage_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="must be at least 0 and less than 1"):
        mean_participants(q, 3)
    with pytest.raises(ValueError, match="must be at least 0 and less than 1"):
        participants_bound(q, 3)


def test_the_right_hand_side_by_hand() -> None:
    """T = 16, I = 1 and K* = 1, so that (TIK*)^(1/2) = 4, (TIK*)^(3/4) = 8, (TI)^(3/2) = 64 and (TI)^(1/4) = 2."""
    learning = Learning(
        smoothness=2.0,
        gap=3.0,
        gradient_variance=8.0,
        batch_size=4,
        dissimilarities=(1.0, 3.0),
        quantisation_errors=(1.0, 2.0, 3.0, 4.0),
        local_steps=1,
    )
    bound = convergence_bound(learning, 16, 1.0)
    assert bound.start == pytest.approx(496 * 2 / 44 * 3)
    assert bound.quantisation == pytest.approx(31 / (88 * 64) * 16 * 7.5)
    assert bound.gradient_noise == pytest.approx((39 / 352 + 1 / 704) * 2)
    assert bound.dissimilarity == pytest.approx((4 / 44 + 1 / 176 + 31 / 44) * 5)
    assert bound.total == pytest.approx(bound.start + bound.quantisation + bound.gradient_noise + bound.dissimilarity)


def test_errors_may_differ_by_round() -> None:
    by_round = np.linspace(0, 1, 12).reshape(4, 3)
    values = {**vars(NOISELESS), "quantisation_errors": by_round}
    expected = 31 / (88 * 4**1.5 * 2**0.5) * np.square(by_round).sum() / 3
    assert convergence_bound(Learning(**values), 4, 2.0).quantisation == pytest.approx(expected)


@pytest.mark.parametrize(("rounds", "participants"), [(20, 5.5), (1000, 2.0), (64, 1.5)])
def test_the_condition_on_local_steps(rounds: int, participants: float) -> None:
    steps = most_local_steps(rounds, participants)
    assert steps == pytest.approx((rounds * steps) ** 0.25 / participants**0.75), "as the letter writes it"
    least = least_rounds(7, participants)
    assert (least * 7) ** 0.25 / participants**0.75 == pytest.approx(7)


def _mean_square_gradient(step: float, rounds: int) -> float:
    """Over gradient descent on Lθ²/2 from θ = 1: the same for all nodes, so that it matters not who counts."""
    gradients = NOISELESS.smoothness * (1 - step * NOISELESS.smoothness) ** np.arange(1, rounds + 1)
    return float(np.mean(gradients**2))


def test_the_step_size_that_the_letter_prints_breaks_its_theorem_and_this_one_does_not() -> None:
    rounds, participants = 4, participants_bound(0.0, 2)
    assert NOISELESS.local_steps <= (rounds * NOISELESS.local_steps) ** 0.25 / participants**0.75
    bound = convergence_bound(NOISELESS, rounds, participants).total
    denominator = 8 * NOISELESS.smoothness * rounds * NOISELESS.local_steps
    assert _mean_square_gradient(participants / denominator**0.5, rounds) > 1e5 * bound
    assert _mean_square_gradient((participants / denominator) ** 0.5, rounds) > 1e4 * bound
    assert _mean_square_gradient(step_size(NOISELESS, rounds, participants), rounds) < bound


def test_the_step_size_gives_the_printed_terms() -> None:
    learning = Learning(
        smoothness=3.0,
        gap=2.0,
        gradient_variance=0.0,
        batch_size=1,
        dissimilarities=0.0,
        quantisation_errors=5.0,
        local_steps=4,
    )
    step, bound = step_size(learning, 50, 2.5), convergence_bound(learning, 50, 2.5)
    assert bound.start == pytest.approx(62 / 11 * 2.0 / (step * 50 * 4))
    assert bound.quantisation == pytest.approx(62 / 11 * 3.0 * step / (2 * 2.5 * 50 * 4) * 50 * 25.0)


def test_the_command_prints_the_formulas() -> None:
    result = CliRunner().invoke(cli, ["theory", "--clients", "4", "--pe", "0.3", "--rounds", "2000", "--json"])
    figures = json.loads(result.stdout)
    assert figures["q"] == pytest.approx(0.3**7)
    assert figures["mean_participants"] == mean_participants(0.3**7, 4)
    assert figures["participants_bound"] == participants_bound(0.3**7, 4)
    assert figures["bound"] == pytest.approx(sum(figures["terms"].values()))
    assert figures["condition_holds"] is (2000 ** (1 / 3) / figures["participants_bound"] >= 5)


def test_the_command_says_where_the_theorem_does_not_hold() -> None:
    result = CliRunner().invoke(cli, ["theory", "--snr", "3"])
    assert "P_e = 0.19445" in result.stdout
    assert "the theorem does NOT hold for I = 5" in result.stdout
    assert "20,797     rounds are the fewest" in result.stdout
    result = CliRunner().invoke(cli, ["theory", "--q", "0.5", "--rounds", "20797"])
    assert "outage q of a message, as given" in result.stdout
    assert "the theorem holds" in result.stdout


def test_the_command_draws_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "theory"
    arguments = ["theory", "--clients", "3", "--out", str(folder)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert (folder / "theory.png").read_bytes().startswith(b"\x89PNG")
    header, *lines = (folder / "theory.csv").read_text().splitlines()
    assert header == "rounds,condition_holds,start,quantisation,gradient_noise,dissimilarity,bound"
    assert len(lines) > 50
    again = CliRunner().invoke(cli, arguments)
    assert isinstance(again.exception, StorageError)
    assert "theory.csv exists: nothing is overwritten" in str(again.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clients", "1"], "clients = 1: must be at least 2"),
        (["--pe", "1.5"], r"pe = 1\.5: must lie in \[0, 1\]"),
        (["--pe", "1"], "P_e = 1: must be less than 1, or nothing is ever recovered"),
        (["--clients", "2", "--pe", '{"nodes": [[0, 0.1], [0.2, 0]], "server": [0.1, 0.1]}'], "one outage probability for all"),
    ],
)
def test_impossible_settings_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CliRunner().invoke(cli, ["theory", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--q", "1"], "1.0 is not in the range 0<=x<1"),
        (["--q", "nan"], "nan: must be a number"),
        (["--gap", "inf"], "inf is not in the range"),
        (["--dissimilarity", "1,x"], "'1,x': must be a number from 0 to 1e+30, or one for each node"),
        (["--dissimilarity", "1,2"], "--dissimilarity has 2 values: must be one, or 10"),
        (["--smothness", "1"], "No such option"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["theory", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
