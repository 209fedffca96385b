"""Repetition: who repeats what, and the outage of a message against link states counted one by one."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from dncfl.common.config import load_config
from dncfl.common.field import PrimeField, determined
from dncfl.common.message import encode_message
from dncfl.common.repetition import RepetitionCode
from dncfl.common.scheme import channel, network_code
from dncfl.launch.reference import simulated
from tests.unit.updates import update_of

Flags = NDArray[np.bool_]


def _states(num_clients: int) -> Iterator[tuple[Flags, Flags, Flags]]:
    """All states of the links: heard[z][m], direct[z] and relayed[m][j]."""
    M = num_clients
    pairs = [(z, m) for z in range(M) for m in range(M) if z != m]
    for bits in product([False, True], repeat=len(pairs) + M + M * (M - 1)):
        heard = np.eye(M, dtype=bool)
        heard[tuple(zip(*pairs, strict=True))] = bits[: len(pairs)]
        direct, relayed = np.array(bits[len(pairs) : len(pairs) + M]), np.array(bits[len(pairs) + M :])
        yield heard, direct, relayed.reshape(M, M - 1)


def _arrived(heard: Flags, direct: Flags, relayed: Flags) -> set[int]:
    """The messages that reach the PS, told one transmission after the other."""
    M = len(direct)
    arrived = {z for z in range(M) if direct[z]}
    for m in range(M):
        for j in range(1, M):
            if relayed[m, j - 1]:
                other = (m + j) % M
                arrived.add(other if heard[other, m] else m)
    return arrived


def _outage(num_clients: int, pe: float) -> float:
    """The probability that the message of node 0 does not arrive, over all states of the links."""
    total = 0.0
    for heard, direct, relayed in _states(num_clients):
        if 0 not in _arrived(heard, direct, relayed):
            links = np.concatenate([heard[~np.eye(num_clients, dtype=bool)], direct, relayed.ravel()])
            total += float(np.prod(np.where(links, 1 - pe, pe)))
    return total


def test_the_outage_of_two_nodes_by_hand() -> None:
    """Node 0 fails in slot 1; its slot 2 carries its own message only if it did not hear node 1; node 1 must hear it."""
    for pe in (0.1, 0.19445, 0.7):
        assert _outage(2, pe) == pytest.approx(pe * (1 - pe * (1 - pe)) * (1 - (1 - pe) ** 2), rel=1e-12)


@pytest.mark.parametrize(("num_clients", "num_states"), [(2, 64), (3, 32768)])
def test_the_equations_determine_what_arrives_in_every_state(num_clients: int, num_states: int) -> None:
    code = RepetitionCode(num_clients)
    field, states = PrimeField(code.p), list(_states(num_clients))
    assert len(states) == num_states
    for heard, direct, relayed in states[:: 1 if num_clients == 2 else 11]:  # an odd step: every link is met in both states
        reduced, _ = field.row_reduce(code.equations(heard, direct, relayed))
        assert set(determined(reduced)) == _arrived(heard, direct, relayed)


def test_simulated_rounds_have_the_outage_of_the_enumeration() -> None:
    config = load_config(None, {"clients": 3, "pe": 0.4, "method": "repetition", "seed": 3})
    links, rounds = channel(config), 3000
    missing = [0 not in simulated(config, links, round).recovered for round in range(1, rounds + 1)]
    expected = _outage(3, 0.4)
    assert abs(np.mean(missing) - expected) < 4 * np.sqrt(expected * (1 - expected) / rounds)


def test_a_node_repeats_the_messages_it_holds_as_they_came() -> None:
    code = RepetitionCode(4)
    messages = {m: encode_message(update_of(np.full(5, m, dtype=np.uint8)), code.p, round=1, sender=m) for m in (0, 2, 3)}
    assert [code.codewords(2, messages)[j] is messages[z] for j, z in enumerate([3, 0, 2])] == [True, True, True]
    assert code.codewords(2, messages, [3]) == [messages[0]]
    assert [code.coefficients(2, slot, (0, 2, 3)).tolist() for slot in (1, 2, 3, 4)] == [
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [1, 0, 0, 0],
        [0, 0, 1, 0],
    ]


@pytest.mark.parametrize(
    ("settings", "size"),
    [({"clients": 3}, 1), ({"clients": 20}, 1), ({"clients": 20, "levels": 300}, 2), ({"clients": 3, "levels": 257}, 1)],
)
def test_the_size_of_what_is_repeated_is_that_of_a_message(settings: dict[str, object], size: int) -> None:
    config = load_config(None, settings | {"method": "repetition"})
    code = network_code(config)
    levels = np.zeros(100, dtype=np.uint8) if config.levels <= 256 else np.zeros(100, dtype=np.uint16)
    message = encode_message(update_of(levels), code.p, round=1, sender=0)
    assert code.bytes_per_codeword_symbol == message.plane.itemsize == size
