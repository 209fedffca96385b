"""Exact figures of few nodes: all states of the links, grouped so that there are few.

Which messages the PS heard itself is gone through set by set; of the others, the unknown ones, only the coefficients
matter. A node's state, what it holds and which of its codewords arrive, matters only by the row space of these codewords:
states of one row space are one option, whose probability is their sum. The options of the nodes are combined node by
node, and a branch ends early where the rank is full.
"""

from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.compiled import compiled
from dncfl.common.field import PrimeField
from dncfl.common.payload import Symbols
from dncfl.launch.outage.network import Figures, Floats, Network, certain
from dncfl.server.elimination import eliminate, find_determined

MOST_CLIENTS = 4
"""The options of five nodes are 163^5."""


@compiled("void(uint16[:, :, ::1], int64[::1], float64[:, ::1], int64[::1], int64, float64, float64[:, ::1])")
def combine(equations, ranks, weights, firsts, start, p, missing):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add to missing (2^u × points) the weights of all combinations of options that begin with option `start`.

    Option i has ranks[i] equations (of S × u) and a weight for each point; node m has options firsts[m] .. firsts[m+1]-1.
    """
    num_unknowns, num_nodes = equations.shape[2], len(firsts) - 1
    rows = np.empty((num_nodes + 1, num_unknowns, 2 * num_unknowns))
    pivots = np.empty((num_nodes + 1, num_unknowns), np.int64)
    rank = np.zeros(num_nodes + 1, np.int64)
    weight = np.ones((num_nodes + 1, weights.shape[1]))
    places = np.empty(num_unknowns, np.int64)
    involved = np.empty(num_unknowns, np.bool_)
    new = np.empty(max(1, equations.shape[1]), np.bool_)
    option = np.empty(num_nodes, np.int64)
    option[0] = start
    node = 0
    while True:
        if option[node] == (start + 1 if node == 0 else firsts[node + 1]):
            if node == 0:
                return
            node -= 1
            option[node] += 1
            continue
        i, after = option[node], node + 1
        rows[after] = rows[node]
        pivots[after] = pivots[node]
        rank[after] = eliminate(rows[after], pivots[after], rank[node], equations[i, : ranks[i]], p, involved, new)
        for x in range(weights.shape[1]):
            weight[after, x] = weight[node, x] * weights[i, x]
        if rank[after] < num_unknowns and after < num_nodes:
            node = after
            option[node] = firsts[node]
            continue
        members = 0
        if rank[after] < num_unknowns:
            find_determined(rows[after], pivots[after], rank[after], places)
            for z in range(num_unknowns):
                if places[z] < 0:
                    members |= 1 << z
        missing[members] += weight[after]
        option[node] += 1


def missing_sets(code: DiversityNetworkCode, outage: Floats) -> Floats:
    """P(the messages of this set, and no others, are not recovered): 2^M × points, bit z of a set's number for message z.

    outage: points × M × (M + 1).
    """
    result = np.zeros((2**code.num_clients, len(outage)))
    for unknown in _subsets(range(code.num_clients)):
        known = [z for z in range(code.num_clients) if z not in unknown]
        weight = outage[:, unknown, -1].prod(axis=1) * (1 - outage[:, known, -1]).prod(axis=1)
        numbers = [sum(1 << z for z in subset) for subset in _subsets(unknown)]
        result[numbers] += weight * _missing_of(code, outage, unknown)
    return result


def _missing_of(code: DiversityNetworkCode, outage: Floats, unknown: Sequence[int]) -> Floats:
    """The same, given which messages the PS did not hear: 2^u × points, in the order of `_subsets`."""
    options = [_options(code, outage, unknown, m) for m in range(code.num_clients)]
    all_options = list(chain.from_iterable(options))
    equations = np.zeros((len(all_options), max(1, code.relay_slots), len(unknown)), dtype=np.uint16)
    for place, (reduced, _) in enumerate(all_options):
        equations[place, : len(reduced)] = reduced
    ranks = np.array([len(reduced) for reduced, _ in all_options])
    weights = np.array([weight for _, weight in all_options])
    firsts = np.cumsum([0, *map(len, options)])
    missing = np.zeros((2 ** len(unknown), len(outage)))
    for start in range(firsts[1]):
        combine(equations, ranks, weights, firsts, start, float(code.p), missing)
    return missing[[sum(1 << place for place in places) for places in _subsets(range(len(unknown)))]]


def _options(
    code: DiversityNetworkCode, outage: Floats, unknown: Sequence[int], node: int
) -> list[tuple[Symbols, NDArray[np.float64]]]:
    """The row spaces that a node's codewords may have over the unknown messages, each with its probability (points)."""
    field, to_server = PrimeField(code.p), outage[:, node, -1]
    others = [z for z in unknown if z != node]
    grouped: dict[bytes, tuple[Symbols, Floats]] = {}
    for heard in _subsets(others):
        unheard = [z for z in others if z not in heard]
        hears = (1 - outage[:, heard, node]).prod(axis=1) * outage[:, unheard, node].prod(axis=1)
        held = [place for place, z in enumerate(unknown) if z in heard or z == node]
        for arrived in _subsets(range(code.relay_slots)):
            rows = np.zeros((len(arrived), len(unknown)), dtype=np.uint16)
            rows[:, held] = code.block(node)[np.ix_([unknown[place] for place in held], arrived)].T
            reduced, _ = field.row_reduce(rows)
            arrives = (1 - to_server) ** len(arrived) * to_server ** (code.relay_slots - len(arrived))
            _, before = grouped.get(reduced.tobytes(), (reduced, 0.0))
            grouped[reduced.tobytes()] = (reduced, before + hears * arrives)
    return list(grouped.values())


def _subsets(values: Sequence[int]) -> list[list[int]]:
    return [list(subset) for size in range(len(values) + 1) for subset in combinations(values, size)]


def exact(networks: Sequence[Network]) -> list[Figures]:
    """The figures of networks that differ only in their outages. Raises ValueError for more than MOST_CLIENTS nodes."""
    code = networks[0].code
    if code.num_clients > MOST_CLIENTS:
        raise ValueError(f"{code.num_clients} nodes have too many states: at most {MOST_CLIENTS} can be enumerated")
    outage = np.array([network.outage for network in networks])
    shorter = [DiversityNetworkCode(code.num_clients, slots, code.p) for slots in range(code.relay_slots)]
    needed = np.array([missing_sets(fewer, outage)[1:].sum(axis=0) for fewer in shorter]).reshape(-1, len(networks))
    return [_figures(code, *each) for each in zip(missing_sets(code, outage).T, needed.T, strict=True)]


def _figures(code: DiversityNetworkCode, missing: Floats, more_needed: Floats) -> Figures:
    """missing: P(set), 2^M; more_needed: P(more than s relay slots are needed) for s = 0..S-1."""
    members = (np.arange(2**code.num_clients)[:, None] >> np.arange(code.num_clients)) & 1
    by_node = missing @ members
    sizes = members.sum(axis=1)
    num_recovered = np.array([missing[sizes == code.num_clients - n].sum() for n in range(code.num_clients + 1)])
    return Figures(
        method="exact",
        trials=0,
        failures=0,
        outage=certain(float(by_node.mean())),
        outage_by_node=by_node,
        not_all=certain(float(missing[1:].sum())),
        num_recovered=num_recovered,
        relay_slots=-np.diff(np.concatenate([[1.0], more_needed, [0.0]])),
    )
