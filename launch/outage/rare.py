"""Rare failures by importance sampling: networks are drawn that fail, and each counts by how likely it is.

When messages are not recovered there is a set V of messages and a change of just these that no arrived equation sees. So
the PS heard none of V itself, and of a node that holds h > 0 of V fewer than h codewords arrived, since any h of them
would show the change (the code is MDS); a node that holds none of V does not matter. The proposal draws V, then the links:

    the links of V to the PS in slot 1   down
    a node of V                          its codewords are down more often
    another node                         hears none of V, or else its codewords are down more often

A draw counts by its probability over that of all proposals together, whichever V it came from. So weights stay about as
small as the probability of the failure itself, and those of different V do not compete.

Most failures of more than two nodes are of a single message that takes part in no equation. The probability of this is a closed
form, and only the difference to it is estimated.
"""

from math import comb

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import compiled
from dncfl.common.randomness import Purpose, stream
from dncfl.launch.outage.monte_carlo import blocks_of, decoded
from dncfl.launch.outage.network import Figures, Floats, Network, normal

MOST_CLIENTS = 12
"""The proposals are one for each set of messages: 4095."""

LEAST_LOUD = 0.1
"""How often at least a node outside V may hear some of V, so that no failure is left out."""


@compiled("void(float64[:, :, ::1], int64[::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], boolean[:, :, ::1])")
def propose(uniform, chosen, outage, quiet, tilted, down):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Draw the transmissions (n × M × (M + 1 + S)) that are down from the proposals of the chosen sets V (n)."""
    num_trials, num_clients, width = down.shape
    for t in range(num_trials):
        unresolved, size = chosen[t], 0
        for z in range(num_clients):
            size += (unresolved >> z) & 1
        for z in range(num_clients):
            down[t, z, num_clients] = (unresolved >> z) & 1 or uniform[t, z, num_clients] < outage[z, num_clients]
        for m in range(num_clients):
            inside = (unresolved >> m) & 1
            deaf = not inside and uniform[t, m, width] < quiet[m, unresolved]
            for z in range(num_clients):
                down[t, z, m] = z != m and ((deaf and (unresolved >> z) & 1) or uniform[t, z, m] < outage[z, m])
            limit = outage[m, num_clients] if deaf else tilted[m, size]
            for x in range(num_clients + 1, width):
                down[t, m, x] = uniform[t, m, x] < limit


@compiled(
    "void(boolean[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, :, ::1], float64[::1], float64[::1])"
)
def weigh(down, outage, quiet, hears_none, ratios, shares, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The probability of each draw over that of all proposals together: weights (n)."""
    num_trials, num_clients, width = down.shape
    heard = np.empty(num_clients, np.int64)
    lost = np.empty(num_clients, np.int64)
    for t in range(num_trials):
        unknown, impossible = 0, False
        for m in range(num_clients):
            heard[m], lost[m] = 0, 0
            for z in range(num_clients):
                if z != m and not down[t, z, m]:
                    heard[m] |= 1 << z
            for x in range(num_clients + 1, width):
                lost[m] += down[t, m, x]
            if down[t, m, num_clients]:
                unknown |= 1 << m
            impossible |= outage[m, num_clients] == 0 and (lost[m] > 0 or down[t, m, num_clients])
        weights[t] = 0
        if impossible:
            continue
        total, unresolved = 0.0, unknown
        while unresolved:
            size = 0
            for z in range(num_clients):
                size += (unresolved >> z) & 1
            term = shares[size]
            for m in range(num_clients):
                ratio = ratios[m, size, lost[m]]
                if (unresolved >> m) & 1:
                    factor = ratio / outage[m, num_clients]
                else:
                    factor = (1 - quiet[m, unresolved]) * ratio
                    if quiet[m, unresolved] > 0 and not heard[m] & unresolved:
                        factor += quiet[m, unresolved] / hears_none[m, unresolved]
                if factor == 0:
                    term = 0.0
                    break
                term *= factor
            total += term
            unresolved = (unresolved - 1) & unknown
        weights[t] = 1 / total


class Proposals:
    """The proposal of each set V of messages (a number whose bit z stands for message z), all sizes equally often."""

    def __init__(self, network: Network) -> None:
        """Raises ValueError for more than MOST_CLIENTS nodes."""
        num_clients, slots = network.num_clients, network.code.relay_slots
        if num_clients > MOST_CLIENTS:
            raise ValueError(f"{num_clients} nodes have too many sets: at most {MOST_CLIENTS} can be gone through")
        self._network = network
        self._outage = np.ascontiguousarray(network.outage)
        to_server = self._outage[:, -1:]
        sets = np.arange(2**num_clients)
        sizes = np.bitwise_count(sets).astype(np.int64)
        size = np.arange(1, num_clients + 1)
        may_arrive = (size - 1) / size
        """of the codewords of each node of V, on average: all nodes of V together may show |V| - 1 equations"""
        tilted = np.maximum(to_server, 1 - may_arrive / max(slots, 1))
        self._tilted = np.hstack([to_server, tilted])
        self._hears_none = np.ones((num_clients, len(sets)))
        for z in range(num_clients):
            self._hears_none[:, (sets >> z) & 1 == 1] *= self._outage[z, :num_clients, None]
        not_heard = (to_server ** np.maximum(0, slots - may_arrive))[:, np.maximum(sizes, 1) - 1]
        both = self._hears_none + not_heard
        quiet = np.divide(self._hears_none, both, out=np.zeros_like(both), where=both > 0)
        self._quiet = np.minimum(1 - LEAST_LOUD, quiet)
        self._ratios = np.ascontiguousarray(_ratios(to_server, self._tilted, slots))
        self._shares = np.array([0.0, *(1 / (num_clients * comb(num_clients, int(v))) for v in size)])

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[NDArray[np.bool_], Floats]:
        """Transmissions that are down (trials × M × (M + 1 + S)), and the weight of each draw."""
        num_clients, width = self._network.transmissions.shape
        sizes = rng.integers(1, num_clients + 1, trials)
        places = rng.random((trials, num_clients)).argsort(axis=1)
        chosen = ((places < sizes[:, None]) << np.arange(num_clients)).sum(axis=1)
        down, weights = np.empty((trials, num_clients, width), dtype=np.bool_), np.empty(trials)
        propose(rng.random((trials, num_clients, width + 1)), chosen, self._outage, self._quiet, self._tilted, down)
        weigh(down, self._outage, self._quiet, self._hears_none, self._ratios, self._shares, weights)
        return down, weights


def _ratios(to_server: Floats, tilted: Floats, slots: int) -> Floats:
    """How much likelier it is that 0..S codewords are lost, tilted: M × sizes × (S + 1); 0 where it cannot happen."""
    lost = np.arange(slots + 1)
    q, tilt = to_server[:, :, None], tilted[:, :, None]
    more = np.divide(tilt, q, out=np.zeros_like(tilt), where=q > 0)
    fewer = np.divide(1 - tilt, 1 - q, out=np.zeros_like(tilt), where=q < 1)
    ratios: Floats = more**lost * fewer ** (slots - lost)
    return ratios


def rare(network: Network, trials: int, seed: int) -> Figures:
    """The figures of a network by this many weighted attempts. Raises ValueError for more than MOST_CLIENTS nodes."""
    num_clients, proposals = network.num_clients, Proposals(network)
    draws_each = num_clients * (network.transmissions.shape[1] + 2)
    beyond, beyond_squared = np.zeros(num_clients), 0.0
    joint, joint_squared = 0.0, 0.0
    num_missing, failures = np.zeros(num_clients + 1), 0
    for number, size in blocks_of(trials, draws_each):
        down, weights = proposals.draw(size, stream(seed, Purpose.RARE_OUTAGE, round=number))
        missing, _ = decoded(network, down)
        more = (missing ^ _absent(down)) * weights[:, None]
        beyond += more.sum(axis=0)
        beyond_squared += float((more.mean(axis=1) ** 2).sum())
        difference = (missing.any(axis=1).astype(np.float64) - _absent(down).sum(axis=1)) * weights
        joint += float(difference.sum())
        joint_squared += float((difference**2).sum())
        num_missing += np.bincount(missing.sum(axis=1), weights, minlength=num_clients + 1)
        failures += int(missing.any(axis=1).sum())
    absent = network.absent
    by_node = absent + beyond / trials
    not_all = min(1.0, max(0.0, float(absent.sum()) + joint / trials))
    num_missing[1:] *= not_all / max(num_missing[1:].sum(), np.finfo(float).tiny)
    num_missing[0] = 1 - not_all
    return Figures(
        method="rare-event sampling",
        trials=trials,
        failures=failures,
        outage=normal(float(by_node.mean()), _error(float(beyond.mean()), beyond_squared, trials)),
        outage_by_node=by_node,
        not_all=normal(not_all, _error(joint, joint_squared, trials)),
        num_recovered=num_missing[::-1],
        relay_slots=None,
    )


def _absent(down: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each message (n × M) takes part in no equation that arrives."""
    num_clients = down.shape[1]
    silent: NDArray[np.bool_] = np.all(down[:, :, num_clients + 1 :], axis=2)
    hidden = down[:, :, :num_clients] | silent[:, None, :]
    unseen: NDArray[np.bool_] = np.all(hidden | np.eye(num_clients, dtype=np.bool_), axis=2)
    return down[:, :, num_clients] & silent & unseen


def _error(total: float, squared: float, trials: int) -> float:
    """The standard error of the mean of values with this sum and sum of squares."""
    mean = total / trials
    return float(np.sqrt(max(0.0, squared / trials - mean**2) / trials))
