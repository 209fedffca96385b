"""The weights of collaborative relaying: S by counting link states, its minimum by a grid and by the conditions for one."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from dncfl.common.relay_weights import cut_off, optimal_weights, variance_bound

Reals = NDArray[np.float64]
P_E = 0.19445


def _random(num_clients: int, seed: int) -> Reals:
    return np.random.default_rng(seed).random((num_clients, num_clients + 1))


def _some_at_the_limits() -> Reals:
    """Node 0 does not reach the PS, node 1 is not heard by node 2, and node 3 has perfect links to node 2 and the PS."""
    outage = np.full((4, 5), 0.3)
    outage[0, 4] = outage[1, 2] = 1.0
    outage[3, 2] = outage[3, 4] = 0.0
    return outage


def _three_bad() -> Reals:
    outage = np.full((10, 11), P_E)
    outage[:3, 10] = 0.9
    return outage


CASES = {
    "two at random": _random(2, 1),
    "five at random": _random(5, 2),
    "twelve at random": _random(12, 3),
    "links at the limits": _some_at_the_limits(),
    "three bad ones of ten": _three_bad(),
    "equal links": np.full((10, 11), P_E),
    "perfect links": np.zeros((3, 4)),
    "a path of one in a hundred thousand": np.array([[0, 1, 0.99999], [0, 0, 1]]),
}


def _paths(outage: Reals) -> Reals:
    """w (M × M): the probability that update k gets to the PS by way of node m, in row m and column k."""
    heard = 1 - outage[:, :-1]
    np.fill_diagonal(heard, 1)
    paths: Reals = (1 - outage[:, -1])[:, None] * heard.T
    return paths


def _uniform(outage: Reals) -> Reals:
    """The same weight for whoever may relay an update: unbiased, too."""
    paths = _paths(outage)
    weights: Reals = (paths > 0) / paths.sum(axis=0)
    return weights


def _variance_by_counting(weights: Reals, outage: Reals) -> float:
    """The variance of the sum of all factors, over all states of the links of two nodes."""
    values, probabilities = [], []
    for arrives_0, arrives_1, heard_01, heard_10 in product([0, 1], repeat=4):
        q = [outage[0, 2], outage[1, 2], outage[0, 1], outage[1, 0]]
        up = [arrives_0, arrives_1, heard_01, heard_10]
        probabilities.append(np.prod([1 - q[i] if up[i] else q[i] for i in range(4)]))
        sum_0 = weights[0, 0] + heard_10 * weights[0, 1]
        sum_1 = weights[1, 1] + heard_01 * weights[1, 0]
        values.append(arrives_0 * sum_0 + arrives_1 * sum_1)
    mean = np.dot(probabilities, values)
    return float(np.dot(probabilities, (np.array(values) - mean) ** 2))


@pytest.mark.parametrize("outage", CASES.values(), ids=CASES.keys())
def test_the_weights_are_unbiased_and_not_negative(outage: Reals) -> None:
    weights = optimal_weights(outage)
    assert (weights >= 0).all()
    assert (_paths(outage) * weights).sum(axis=0) == pytest.approx(1, abs=1e-12)
    assert not weights[_paths(outage) == 0].any()


@pytest.mark.parametrize("outage", CASES.values(), ids=CASES.keys())
def test_the_weights_are_optimal(outage: Reals) -> None:
    """S is convex: it is least where its slope per unit of the constraint is equal on all used paths, and no less on others."""
    weights, paths = optimal_weights(outage), _paths(outage)
    step = 0.5 * weights.max()
    slope = np.empty_like(weights)
    for place in np.ndindex(*weights.shape):
        up, down = weights.copy(), weights.copy()
        up[place] += step
        down[place] -= step
        slope[place] = (variance_bound(up, outage) - variance_bound(down, outage)) / (2 * step)  # exact: S is quadratic
    for k in range(len(outage)):
        price = slope[paths[:, k] > 0, k] / paths[paths[:, k] > 0, k]
        used = weights[paths[:, k] > 0, k] > 0
        assert price[used] == pytest.approx(price.min(), abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_two_nodes_against_all_weights_on_a_grid(seed: int) -> None:
    outage = _random(2, seed)
    paths, least = _paths(outage), variance_bound(optimal_weights(outage), outage)
    tried = []
    for own in product(np.linspace(0, 1, 201), repeat=2):  # the shares of 1 that go by the node itself
        share = np.array([[own[0], 1 - own[1]], [1 - own[0], own[1]]])
        tried.append(variance_bound(share / paths, outage))
    assert least <= min(tried) * (1 + 1e-12)
    assert least == pytest.approx(min(tried), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_s_is_the_variance_over_all_states_of_the_links(seed: int) -> None:
    outage = _random(2, seed)
    for weights in (optimal_weights(outage), _uniform(outage)):
        assert variance_bound(weights, outage) == pytest.approx(_variance_by_counting(weights, outage), rel=1e-9)


def test_over_equal_links_nobody_relays() -> None:
    """Any unbiased sums have as much variance on the links to the PS, and more between nodes than those of own updates only."""
    outage = np.full((10, 11), P_E)
    weights = optimal_weights(outage)
    assert weights == pytest.approx(np.eye(10) / (1 - P_E), abs=1e-12)
    assert np.count_nonzero(weights) == 10
    assert variance_bound(weights, outage) == pytest.approx(10 * P_E / (1 - P_E))


def test_unequal_links_are_helped_by_the_others() -> None:
    outage = _three_bad()
    weights = optimal_weights(outage)
    assert (weights[3:, :3] > 0).all()
    assert variance_bound(weights, outage) < 0.9 * variance_bound(_uniform(outage), outage)
    alone = np.diag(1 / (1 - outage[:, -1]))
    assert variance_bound(weights, outage) < 0.2 * variance_bound(alone, outage)


def test_nodes_without_a_path_are_named() -> None:
    outage = np.full((3, 4), 0.5)
    assert cut_off(outage) == ()
    outage[1] = 1
    assert cut_off(outage) == (1,)
    outage[1, 2] = 1 - 1e-5
    assert cut_off(outage) == ()
    outage[2, 3] = 0.99
    assert cut_off(outage) == (1,)
