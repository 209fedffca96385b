"""Attempt after attempt with drawn links: Monte Carlo over the real code and its elimination over GF(p)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dncfl.common.compiled import compiled
from dncfl.common.randomness import Purpose, stream
from dncfl.launch.outage.network import Figures, Network, wilson
from dncfl.server.elimination import eliminate, find_determined

BLOCK = 2**20
"""Draws at a time: 8 MB, and so few that a signal is soon seen."""


@compiled("void(boolean[:, :, ::1], Array(uint16, 3, 'C', readonly=True), float64, boolean[:, ::1], int64[::1])")
def decode(down, blocks, p, missing, relay_slots):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What is missing (n × M) after attempts whose transmissions (n × M × (M + 1 + S)) are down, and the relay slots used (n).

    As in a run with early stop: a relay slot is sent only when not all is recovered, which is when the rank is below M.
    """
    num_trials, num_clients = missing.shape
    rows = np.empty((num_clients, 2 * num_clients))
    pivots = np.empty(num_clients, np.int64)
    places = np.empty(num_clients, np.int64)
    involved = np.empty(num_clients, np.bool_)
    new = np.empty(num_clients, np.bool_)
    equations = np.empty((num_clients, num_clients), np.uint16)
    for t in range(num_trials):
        count = 0
        for z in range(num_clients):
            if not down[t, z, num_clients]:
                equations[count] = 0
                equations[count, z] = 1
                count += 1
        relay_slots[t] = 0
        if count == num_clients:
            missing[t] = False
            continue
        rank = eliminate(rows, pivots, 0, equations[:count], p, involved, new)
        for s in range(blocks.shape[2]):
            if rank == num_clients:
                break
            relay_slots[t] += 1
            count = 0
            for m in range(num_clients):
                if not down[t, m, num_clients + 1 + s]:
                    for z in range(num_clients):
                        equations[count, z] = 0 if down[t, z, m] else blocks[m, z, s]
                    count += 1
            rank = eliminate(rows, pivots, rank, equations[:count], p, involved, new)
        find_determined(rows, pivots, rank, places)
        for z in range(num_clients):
            missing[t, z] = places[z] < 0


def decoded(network: Network, down: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """`decode` with the code of a network."""
    missing, relay_slots = np.empty(down.shape[:2], dtype=np.bool_), np.empty(len(down), dtype=np.int64)
    decode(down, network.blocks, float(network.code.p), missing, relay_slots)
    return missing, relay_slots


def blocks_of(trials: int, draws_each: int) -> Iterator[tuple[int, int]]:
    """The numbers of blocks, from 0, with how many trials each has."""
    size = max(1, BLOCK // draws_each)
    for number, first in enumerate(range(0, trials, size)):
        yield number, min(size, trials - first)


def monte_carlo(network: Network, trials: int, seed: int) -> Figures:
    """The figures of a network by this many attempts."""
    num_clients, transmissions = network.num_clients, network.transmissions
    missed = np.zeros(num_clients, dtype=np.int64)
    num_missing = np.zeros(num_clients + 1, dtype=np.int64)
    used = np.zeros(network.code.relay_slots + 1, dtype=np.int64)
    for number, size in blocks_of(trials, transmissions.size):
        rng = stream(seed, Purpose.OUTAGE, round=number)
        missing, relay_slots = decoded(network, rng.random((size, *transmissions.shape)) < transmissions)
        missed += missing.sum(axis=0)
        num_missing += np.bincount(missing.sum(axis=1), minlength=num_clients + 1)
        used += np.bincount(relay_slots, minlength=len(used))
    shares = num_missing / trials
    fractions = np.arange(num_clients + 1) / num_clients
    mean = float(shares @ fractions)
    error = np.sqrt(shares @ (fractions - mean) ** 2 / trials)
    not_all = float(1 - shares[0])
    return Figures(
        method="Monte Carlo",
        trials=trials,
        failures=int(trials - num_missing[0]),
        outage=wilson(mean, float(error), trials),
        outage_by_node=missed / trials,
        not_all=wilson(not_all, float(np.sqrt(not_all * (1 - not_all) / trials)), trials),
        num_recovered=shares[::-1],
        relay_slots=used / trials,
    )
