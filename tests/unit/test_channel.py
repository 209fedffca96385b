"""The channel: outage as in theory, links independent, draws by counter."""

import math

import numpy as np
import pytest

from dncfl.common.channel import (
    BernoulliChannel,
    Channel,
    DropLayer,
    Flags,
    Outcome,
    PerfectChannel,
    RayleighChannel,
    outage_probability,
)

M = 10
PS = M


def _rayleigh(snr: float, seed: int = 1) -> RayleighChannel:
    links = np.ones((M, M + 1))
    return RayleighChannel(seed, snr=snr * links, rate=0.6 * links, sigma2=links)


def _deliveries(channel: Channel, rounds: int, receiver: int, slot: int = 1) -> Flags:
    """(rounds, M) flags."""
    return np.array([channel.delivers(round=r, attempt=1, slot=slot, receiver=receiver) for r in range(1, rounds + 1)])


def test_outage_probability_of_the_letter() -> None:
    assert outage_probability(3, 0.6) == pytest.approx(0.19445, abs=5e-6)
    assert outage_probability(5, 0.6) == pytest.approx(0.12168, abs=5e-6)
    assert outage_probability(3, 0.6, 2.0) == pytest.approx(1 - math.exp(-(2**1.2 - 1) / 3 / 4))


@pytest.mark.parametrize("snr", [3.0, 5.0])
def test_measured_outage_agrees_with_theory(snr: float) -> None:
    deliveries = _deliveries(_rayleigh(snr), 20_000, PS)
    expected, draws = outage_probability(snr, 0.6), deliveries.size
    assert draws >= 100_000
    measured = 1 - deliveries.mean()
    assert abs(measured - expected) < 3 * math.sqrt(expected * (1 - expected) / draws)


def test_bernoulli_outage_per_link() -> None:
    outage = np.linspace(0, 1, M * (M + 1)).reshape(M, M + 1)
    channel = BernoulliChannel(4, outage)
    for receiver in (0, 4, PS):
        measured = 1 - _deliveries(channel, 20_000, receiver).mean(axis=0)
        expected = outage[:, receiver].copy()
        if receiver != PS:
            assert measured[receiver] == 0
            expected[receiver] = 0
        assert np.all(np.abs(measured - expected) <= 4 * np.sqrt(expected * (1 - expected) / 20_000))


def test_links_are_independent() -> None:
    """Between any two links, slots, attempts or successive rounds the correlation is that of chance."""
    channel, rounds = _rayleigh(3.0), 20_000
    columns = [*_deliveries(channel, rounds, PS).T, *_deliveries(channel, rounds, PS, slot=2).T]
    columns += [column for m, column in enumerate(_deliveries(channel, rounds, 0).T) if m != 0]
    columns.append(np.roll(columns[0], 1))
    columns.append(np.array([channel.delivers(round=r, attempt=2, slot=1, receiver=PS)[0] for r in range(1, rounds + 1)]))
    correlation = np.corrcoef(np.array(columns, dtype=float))
    largest = np.abs(correlation - np.eye(len(columns))).max()
    pairs = len(columns) * (len(columns) - 1) / 2
    assert largest < math.sqrt(2 * math.log(pairs * 1000)) / math.sqrt(rounds)  # chance of more: below 1 in 1000


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"round": 4}, {"attempt": 1}, {"slot": 5}, {"receiver": 6}, {"receiver": PS}], ids=str
)
def test_draws_depend_on_the_place_and_the_seed_alone(change: dict[str, int]) -> None:
    """Ten links can agree by chance, so thirty successive rounds are compared."""

    def draws(seed: int = 1, round: int = 3, attempt: int = 2, slot: int = 4, receiver: int = 5) -> Flags:
        channel = _rayleigh(1.0, seed)
        channel.delivers(round=9, attempt=1, slot=1, receiver=PS)  # what was asked before must not matter
        places = range(round, round + 30)
        return np.array([channel.delivers(round=r, attempt=attempt, slot=slot, receiver=receiver) for r in places])

    assert np.array_equal(draws(), draws())
    assert not np.array_equal(draws(), draws(**change))


def test_perfect_links_lose_nothing() -> None:
    assert _deliveries(PerfectChannel(M), 1000, PS).all()


def test_the_drop_layer_asks_once_and_repeats_itself() -> None:
    channel = _rayleigh(0.5)
    drop_layer = DropLayer(channel, PS)
    for round in (1, 2):
        flags = channel.delivers(round=round, attempt=1, slot=3, receiver=PS)
        for sender in reversed(range(M)):
            for _ in range(2):
                outcome = drop_layer.outcome(round=round, attempt=1, slot=3, sender=sender)
                assert outcome is (Outcome.DELIVERED if flags[sender] else Outcome.ERASED)
