"""The weights of collaborative relaying (ColRel): unbiased, and of least variance for the outages of the links.

Node m sends Σ_k α_mk x_k over the updates that it holds, and the PS adds what arrives. With p_m = 1 - q_m, p_km = 1 - q_km
and p_kk = 1, update k gets to the PS by way of node m with probability w_mk = p_m·p_km. The sum is unbiased where
Σ_m w_mk·α_mk = 1 for every k, and for independent links and updates of norm 1 at most its variance is at most

    S = Σ_m p_m(1 - p_m)·(Σ_k p_km·α_mk)² + Σ_m Σ_k p_m·p_km(1 - p_km)·α_mk²,

the sum of all covariances of the factors that the updates come with; equal updates attain it (M. Yemini, R. Saha,
E. Ozfatura, D. Gündüz, A. J. Goldsmith, "Semi-decentralized federated learning with collaborative relaying", ISIT 2022:
S(p, P, A) where the two directions of a link are independent). S is convex, and is minimised column by column as there:
each column α_·k in turn, the others fixed, is a problem in closed form.

Over equal links each node does best to send its own update alone: relaying gains nothing then in terms of S.
"""

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

MIN_PATH = 1e-6
"""The least probability of a node's best path to the PS: with less, one arrival would count a million times."""

TOLERANCE = 1e-12
MAX_SWEEPS = 10_000
"""Sweeps over all columns: a hundred are usual, thousands where many links differ. None makes S larger."""

NEGLIGIBLE = 1e-9
"""Weights below it are what the iteration has left of zero."""


def cut_off(outage: Reals) -> tuple[int, ...]:
    """The nodes without a path to the PS, of one link or two, that holds with probability MIN_PATH or more.

    outage: M × (M + 1), q_mk in the first M columns and q_m, towards the PS, in the last.
    """
    arrives, heard = _probabilities(outage)
    return tuple(np.flatnonzero((arrives * heard).max(axis=1) < MIN_PATH).tolist())


def optimal_weights(outage: Reals) -> Reals:
    """α (M × M), row m the weights of node m; `outage` as for `cut_off`, which must find nothing in it."""
    arrives, heard = _probabilities(outage)
    weights: Reals = np.diag(np.divide(1.0, arrives, out=np.zeros_like(arrives), where=arrives > 0))
    for _ in range(MAX_SWEEPS):
        expected = (heard.T * weights).sum(axis=1)
        before = weights.copy()
        for k in range(len(arrives)):
            others = expected - heard[k] * weights[:, k]
            weights[:, k] = _best_column(arrives * heard[k], (1 - arrives) * others)
            expected = others + heard[k] * weights[:, k]
        if np.abs(weights - before).max() <= TOLERANCE * weights.max():
            break
    weights[weights < NEGLIGIBLE] = 0
    weights /= (arrives[:, None] * heard.T * weights).sum(axis=0)
    return weights


def variance_bound(weights: Reals, outage: Reals) -> float:
    """S of some weights (M × M); `outage` as for `cut_off`."""
    arrives, heard = _probabilities(outage)
    through_ps = arrives * (1 - arrives) * (heard.T * weights).sum(axis=1) ** 2
    through_peers = arrives[:, None] * (heard * (1 - heard)).T * weights**2
    return float(through_ps.sum() + through_peers.sum())


def _probabilities(outage: Reals) -> tuple[Reals, Reals]:
    """p_m (M,), and p_km (M × M) with the sender k in the row and p_kk = 1."""
    heard = 1 - outage[:, :-1]
    np.fill_diagonal(heard, 1.0)
    return 1 - outage[:, -1], heard


def _best_column(path: Reals, cost: Reals) -> Reals:
    """The α (M,) >= 0 with Σ w·α = 1 that minimises Σ w(1 - w)·α² + 2·w·c·α, for w = path (M,) and c = cost (M,) >= 0.

    Where w < 1 it is α = (λ - c)⁺/(1 - w); λ follows from the constraint, whose left side grows by pieces of straight lines
    between the sorted c. A certain path, w = 1, costs nothing, and then no other is used.
    """
    column = np.zeros_like(path)
    if (certain := path == 1).any():
        column[certain] = 1 / np.count_nonzero(certain)
        return column
    usable = np.flatnonzero(path > 0)
    usable = usable[np.argsort(cost[usable], kind="stable")]
    w, c = path[usable], cost[usable]
    slopes = np.cumsum(w / (1 - w))
    levels = (1 + np.cumsum(w * c / (1 - w))) / slopes
    level = levels[np.flatnonzero(levels > c)[-1]]
    column[usable] = np.maximum(level - c, 0) / (1 - w)
    return column
