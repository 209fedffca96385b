"""What the code recovers: each way to the figures against brute force, the reference, each other, and known facts."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from dncfl.common.channel import Channel, Flags
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.config import load_config
from dncfl.common.errors import ConfigError, StorageError
from dncfl.common.field import PrimeField, determined
from dncfl.common.theory import dominant_outage, mean_participants, participants_bound
from dncfl.launch.cli import cli
from dncfl.launch.outage.enumeration import exact, missing_sets
from dncfl.launch.outage.monte_carlo import decoded, monte_carlo
from dncfl.launch.outage.network import Figures, Network, slope, wilson
from dncfl.launch.outage.rare import rare
from dncfl.launch.outage.study import study
from dncfl.launch.reference import Communication

FACTS = [(2, 0.1, 3.31e-3), (3, 0.2, 6.98e-4), (4, 0.3, 3.33e-4)]
"""Probabilities that one message is not recovered, by an independent simulation of 2·10⁵ trials each."""


def _network(num_clients: int, outage: float | NDArray[np.float64], relay_slots: int | None = None) -> Network:
    links = np.full((num_clients, num_clients + 1), outage) if isinstance(outage, float) else outage
    return Network(DiversityNetworkCode(num_clients, relay_slots), links)


def _unequal(num_clients: int, worst: float, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((num_clients, num_clients + 1)) * worst


def _exact(network: Network) -> Figures:
    return exact([network])[0]


def _links(network: Network) -> Flags:
    num_clients, width = network.transmissions.shape
    return ~np.eye(num_clients, width, dtype=np.bool_)


def _states(network: Network) -> Iterator[tuple[float, Flags, Flags, Flags]]:
    """Every state of the links with its probability: who heard whom, what the PS heard in slot 1, and then."""
    num_clients, slots = network.num_clients, network.code.relay_slots
    for bits in product((False, True), repeat=network.transmissions.size - num_clients):
        up = np.ones(network.transmissions.shape, dtype=bool)
        up[_links(network)] = bits
        probability = float(np.where(up, 1 - network.transmissions, network.transmissions).prod())
        yield probability, up[:, :num_clients], up[:, num_clients], up[:, num_clients + 1 :].reshape(num_clients, slots)


def _recovered(network: Network, heard: Flags, direct: Flags, relayed: Flags) -> tuple[int, ...]:
    reduced, _ = PrimeField(network.code.p).row_reduce(network.code.equations(heard, direct, relayed))
    return determined(reduced)


@pytest.mark.parametrize(("num_clients", "relay_slots"), [(2, 0), (2, 1), (3, 1)])
def test_exact_figures_are_those_of_all_states(num_clients: int, relay_slots: int) -> None:
    network = _network(num_clients, _unequal(num_clients, 1.0, 3), relay_slots)
    lost, absent = np.zeros(num_clients), np.zeros(num_clients)
    num_recovered, used = np.zeros(num_clients + 1), np.zeros(relay_slots + 1)
    for probability, heard, direct, relayed in _states(network):
        recovered = _recovered(network, heard, direct, relayed)
        lost[[z for z in range(num_clients) if z not in recovered]] += probability
        absent[~network.code.equations(heard, direct, relayed).any(axis=0)] += probability
        num_recovered[len(recovered)] += probability
        used[0 if direct.all() else relay_slots] += probability  # of one slot at most
    figures = _exact(network)
    assert figures.outage_by_node == pytest.approx(lost, rel=1e-12)
    assert figures.outage.value == pytest.approx(lost.mean(), rel=1e-12)
    assert figures.num_recovered == pytest.approx(num_recovered, rel=1e-12)
    assert figures.not_all.value == pytest.approx(num_recovered[:-1].sum(), rel=1e-12)
    assert figures.relay_slots == pytest.approx(used, rel=1e-12)
    assert network.absent == pytest.approx(absent, rel=1e-12)


def test_exact_sets_of_three_nodes_are_those_of_all_states() -> None:
    network = _network(3, _unequal(3, 0.8, 4))
    down = np.zeros((2**15, *network.transmissions.shape), dtype=np.bool_)
    down[:, _links(network)] = (np.arange(2**15)[:, None] >> np.arange(15)) & 1
    probabilities = np.where(down, network.transmissions, 1 - network.transmissions).prod(axis=(1, 2))
    missing, _ = decoded(network, down)
    expected = np.bincount(missing @ [1, 2, 4], probabilities, 8)
    assert missing_sets(network.code, network.outage[None])[:, 0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("num_clients", "pe", "fact"), FACTS)
def test_exact_figures_meet_the_known_facts(num_clients: int, pe: float, fact: float) -> None:
    assert abs(_exact(_network(num_clients, pe)).outage.value - fact) < 3 * np.sqrt(fact * (1 - fact) / 2e5)


def test_links_of_no_and_of_certain_outage() -> None:
    for figures in (_exact(_network(3, 0.0)), monte_carlo(_network(3, 0.0), 100, 0), rare(_network(3, 0.0), 100, 0)):
        assert figures.outage.value == figures.not_all.value == 0
        assert figures.num_recovered.tolist() == [0, 0, 0, 1]
    for figures in (_exact(_network(3, 1.0)), monte_carlo(_network(3, 1.0), 100, 0)):
        assert figures.outage.value == figures.not_all.value == 1
        assert figures.relay_slots is not None
        assert figures.relay_slots.tolist() == [0, 0, 1]
    assert rare(_network(3, 1.0), 100, 0).outage.value == pytest.approx(1)


def test_a_message_of_a_node_that_nobody_hears_is_lost_and_no_other() -> None:
    outage = np.zeros((4, 5))
    outage[2] = 1.0
    for figures in (_exact(_network(4, outage)), monte_carlo(_network(4, outage), 50, 0), rare(_network(4, outage), 2000, 0)):
        assert figures.outage_by_node == pytest.approx([0, 0, 1, 0])
        assert figures.num_recovered == pytest.approx([0, 0, 0, 1, 0])


class _Recorded(Channel):
    """Links that are as they were drawn."""

    def __init__(self, down: Flags) -> None:
        self._up = ~down

    def delivers(self, *, round: int, attempt: int, slot: int, receiver: int) -> Flags:
        return self._up[:, receiver if receiver < len(self._up) else receiver + slot - 1]


@pytest.mark.parametrize("relay_slots", [0, 2, 4])
def test_an_attempt_ends_as_that_of_a_run(relay_slots: int) -> None:
    config = load_config(None, {"clients": 5, "pe": 0.5, "relay_slots": relay_slots})
    network = Network.of(config)
    down = np.random.default_rng(1).random((200, *network.transmissions.shape)) < network.transmissions
    missing, used = decoded(network, down)
    for t in range(len(down)):
        attempt = Communication(config, 1)
        attempt.attempt_over(_Recorded(down[t]))
        assert np.flatnonzero(~missing[t]).tolist() == sorted(attempt.recovered)
        assert used[t] == attempt.traces[0].relay_slots
    assert len(set(used.tolist())) == relay_slots + 1, "every number of relay slots was met"


@pytest.mark.parametrize("network", [_network(4, 0.4), _network(3, _unequal(3, 0.9, 5), 1)], ids=["equal", "unequal"])
def test_monte_carlo_agrees_with_the_exact_figures(network: Network) -> None:
    trials = 100_000
    drawn, known = monte_carlo(network, trials, 7), _exact(network)
    assert abs(drawn.outage.value - known.outage.value) < 3 * drawn.outage.standard_error
    assert drawn.relay_slots is not None
    assert known.relay_slots is not None
    for shares, expected in ((drawn.num_recovered, known.num_recovered), (drawn.relay_slots, known.relay_slots)):
        assert np.all(np.abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / trials) + 1e-9)


def test_monte_carlo_depends_on_its_seed_alone() -> None:
    network = _network(4, 0.5)
    first, same, other = (monte_carlo(network, 40_000, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.outage_by_node, same.outage_by_node)
    assert not np.array_equal(first.outage_by_node, other.outage_by_node)


def test_stated_errors_of_monte_carlo_are_honest() -> None:
    network = _network(3, 0.4)
    known = _exact(network).outage.value
    runs = [monte_carlo(network, 2000, seed).outage for seed in range(200)]
    z = np.array([(run.value - known) / run.standard_error for run in runs])
    assert abs(z.mean()) < 3 / np.sqrt(200)
    assert 0.7 < z.var() < 1.35  # 200 draws: 1 ± 3 times 0.1
    assert 0.90 < np.mean([run.low < known < run.high for run in runs]) < 0.99


@pytest.mark.parametrize(
    "network",
    [_network(2, 0.1), _network(3, 0.02), _network(4, 0.3), _network(4, 0.2, 1), _network(3, _unequal(3, 0.4, 6))],
    ids=["M=2", "M=3", "M=4", "one relay slot", "unequal"],
)
def test_stated_errors_of_rare_event_sampling_are_honest(network: Network) -> None:
    known = _exact(network)
    runs = [rare(network, 3000, seed) for seed in range(100)]
    for name in ("outage", "not_all"):
        truth = getattr(known, name).value
        z = np.array([(getattr(run, name).value - truth) / getattr(run, name).standard_error for run in runs])
        assert abs(z.mean()) < 3 / np.sqrt(100)
        assert 0.6 < z.var() < 1.5  # 100 draws: 1 ± 3 times 0.14, and a little for skewness
    together = np.mean([run.outage_by_node for run in runs], axis=0)
    assert together == pytest.approx(known.outage_by_node, rel=0.02)


def test_rare_event_sampling_reaches_what_monte_carlo_cannot() -> None:
    known = _exact(_network(4, 0.05)).outage.value
    estimate = rare(_network(4, 0.05), 20_000, 0).outage
    assert known < 1e-9
    assert abs(estimate.value - known) < 3 * estimate.standard_error
    assert estimate.standard_error < 1e-3 * known


def test_rare_event_sampling_agrees_with_monte_carlo() -> None:
    network = _network(6, 0.6)
    drawn, weighted = monte_carlo(network, 50_000, 3), rare(network, 20_000, 3)
    for one, other in ((drawn.outage, weighted.outage), (drawn.not_all, weighted.not_all)):
        assert abs(one.value - other.value) < 3 * np.hypot(one.standard_error, other.standard_error)
    error = np.sqrt(drawn.num_recovered / drawn.trials)
    assert np.all(np.abs(drawn.num_recovered - weighted.num_recovered) < 4 * error + 0.02 * drawn.num_recovered)


@pytest.mark.parametrize(
    ("num_clients", "relay_slots", "order"), [(2, 1, 3), (3, 2, 5), (4, 3, 7), (4, 2, 6), (4, 1, 5), (3, 1, 4), (3, 0, 1)]
)
def test_the_slope_is_2m_minus_1_and_less_with_fewer_relay_slots(num_clients: int, relay_slots: int, order: int) -> None:
    networks = [_network(num_clients, pe, relay_slots) for pe in (0.001, 0.002, 0.004, 0.01)]
    assert slope(networks, [figures.outage.value for figures in exact(networks)]) == pytest.approx(order, rel=0.05)
    assert networks[0].order == order


def test_the_slope_of_many_nodes_is_2m_minus_1() -> None:
    networks = [_network(8, pe) for pe in (0.02, 0.05, 0.1)]
    assert slope(networks, [rare(network, 5000, 0).outage.value for network in networks]) == pytest.approx(15, rel=0.05)


def test_the_letters_outage_has_the_factor_4_for_two_nodes_and_1_for_more() -> None:
    for num_clients, factor in ((2, 4), (3, 1), (4, 1)):
        known = _exact(_network(num_clients, 1e-4)).outage.value
        assert known / dominant_outage(1e-4, num_clients) == pytest.approx(factor, rel=0.001)
        assert _network(num_clients, 1e-4).dominant == pytest.approx(dominant_outage(1e-4, num_clients))


def test_the_letters_participants_are_no_bound_where_links_are_very_bad() -> None:
    known = _exact(_network(4, 0.8)).outage.value
    assert known == pytest.approx(0.437, abs=5e-4)
    assert participants_bound(dominant_outage(0.8, 4), 4) > 1.97 > 1.94 > mean_participants(known, 4)


def test_ten_nodes_need_about_0_89_relay_slots() -> None:
    figures = monte_carlo(_network(10, 0.19445), 20_000, 0)
    assert figures.relay_slots is not None
    assert figures.relay_slots @ np.arange(10) == pytest.approx(0.89, abs=0.01)
    assert figures.relay_slots[:2].sum() >= 0.999


def test_wilson_intervals() -> None:
    """Against the published values for 10 and for 0 of 100."""
    some, none = wilson(0.1, np.sqrt(0.1 * 0.9 / 100), 100), wilson(0.0, 0.0, 100)
    assert (some.low, some.high) == pytest.approx((0.0552, 0.1744), abs=5e-5)
    assert (none.low, none.high) == pytest.approx((0, 0.0370), abs=5e-5)


def test_the_best_method_is_shown() -> None:
    def best(num_clients: int, pe: float) -> str:
        return study([_network(num_clients, pe)], 2000, 0, lambda _: None)[0].best.method

    assert best(4, 0.3) == "exact"
    assert best(5, 0.3) == "rare-event sampling"
    assert best(5, 0.9) == "Monte Carlo"
    assert best(13, 0.3) == "Monte Carlo"


def test_too_many_nodes_for_a_method() -> None:
    with pytest.raises(ValueError, match="5 nodes have too many states"):
        _exact(_network(5, 0.1))
    with pytest.raises(ValueError, match="13 nodes have too many sets"):
        rare(_network(13, 0.1), 10, 0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"trace": "trace.jsonl"}, "recorded links have no outage probability"), ({"method": "repetition"}, "must be dnc")],
)
def test_networks_without_a_code_or_probabilities_are_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Network.of(load_config(None, settings))


def test_the_command_gives_all_figures_as_json() -> None:
    result = CliRunner().invoke(cli, ["outage", "--clients", "3", "--pe", "0.1,0.2", "--trials", "5000", "--json"])
    figures = json.loads(result.stdout)
    assert figures["slope_in_theory"] == 5
    assert [point["direct"] for point in figures["points"]] == pytest.approx([0.1, 0.2])
    for point, pe in zip(figures["points"], (0.1, 0.2), strict=True):
        assert set(point["methods"]) == {"exact", "Monte Carlo"}
        assert point["methods"]["exact"]["outage"]["value"] == pytest.approx(_exact(_network(3, pe)).outage.value)
        assert point["methods"]["Monte Carlo"]["trials"] == 5000


def test_the_command_writes_and_overwrites_nothing(tmp_path: Path) -> None:
    file, folder = tmp_path / "run.toml", tmp_path / "new" / "outage"
    file.write_text("clients = 5\nsnr = 1.0\nrounds = 3\n")
    arguments = ["outage", str(file), "--snr", "0.5,2", "--trials", "3000", "--out", str(folder)]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert "5 nodes, 4 relay slots, GF(257)" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 120
    assert (folder / "outage.png").read_bytes().startswith(b"\x89PNG")
    header, *lines = (folder / "outage.csv").read_text().splitlines()
    assert header.startswith("direct,dominant,method,trials,outage,standard_error,low,high,not_all_recovered,recovered_0,")
    assert len(lines) == 4
    assert all(line.count(",") == header.count(",") for line in lines)
    again = CliRunner().invoke(cli, arguments)
    assert isinstance(again.exception, StorageError)
    assert "outage.csv exists: nothing is overwritten" in str(again.exception)
    occupied = CliRunner().invoke(cli, ["outage", "--out", str(file)])
    assert isinstance(occupied.exception, StorageError)


@pytest.mark.parametrize("pe", ["0", "1", "0,1", "0.3"])
def test_any_outage_can_be_drawn(tmp_path: Path, pe: str) -> None:
    arguments = ["outage", "--clients", "3", "--pe", pe, "--trials", "100", "--out", str(tmp_path)]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    assert (tmp_path / "outage.png").exists()


def test_links_may_differ_on_the_command_line() -> None:
    table = '{"nodes": [[0, 0.1], [0.2, 0]], "server": [0.3, 0.4]}'
    result = CliRunner().invoke(cli, ["outage", "--clients", "2", "--pe", table, "--trials", "100"])
    assert "mean of the links to the PS" in result.stdout
    known = _exact(_network(2, np.array([[0, 0.1, 0.3], [0.2, 0, 0.4]])))
    assert f"{known.outage.value:.4g}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clients", "1"], "clients = 1: must be at least 2"),
        (["--pe", "1.5"], r"pe = 1\.5: must lie in \[0, 1\]"),
        (["--pe", "0.1,x"], "pe = x: must be a number, or a value per link"),
        (["--pe", "0.1,"], "pe = : must be a number, or a value per link"),
        (["--pe", "0.1", "--snr", "3"], "snr = 3.*: has no effect beside pe"),
        (["--clients", "3", "--relay-slots", "3"], "relay_slots = 3: must be at most M-1 = 2"),
        (["--field", "256"], "field = 256: must be a prime"),
    ],
)
def test_impossible_settings_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CliRunner().invoke(cli, ["outage", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trials", "0"], "0 is not in the range x>=1"),
        (["--snr", "1,2", "--rate", "0.5,0.6"], "--snr and --rate both have several values"),
        (["--trails", "10"], "Did you mean"),
    ],
)
def test_impossible_options_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(cli, ["outage", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
