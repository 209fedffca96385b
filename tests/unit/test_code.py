"""The diversity network code: its conventions, and the MDS property by brute force."""

from itertools import combinations

import galois
import numpy as np
import pytest

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.payload import Payload, Symbols


def _rank(columns: Symbols, p: int) -> int:
    return int(np.linalg.matrix_rank(galois.GF(p)(columns)))


@pytest.mark.parametrize("num_clients", [2, 3, 4])
def test_every_m_columns_are_independent(num_clients: int) -> None:
    code = DiversityNetworkCode(num_clients)
    generator = code.generator
    chosen = list(combinations(range(generator.shape[1]), num_clients))
    assert len(chosen) == {2: 6, 3: 84, 4: 1820}[num_clients]
    assert all(_rank(generator[:, columns], code.p) == num_clients for columns in chosen)


@pytest.mark.parametrize("num_clients", [10, 20, 40])
def test_sampled_columns_are_independent(num_clients: int) -> None:
    code = DiversityNetworkCode(num_clients)
    generator, rng = code.generator, np.random.default_rng(num_clients)
    for _ in range(200):
        columns = rng.choice(generator.shape[1], num_clients, replace=False)
        assert _rank(generator[:, columns], code.p) == num_clients


@pytest.mark.parametrize(
    ("num_clients", "min_field", "p"),
    [(2, 257, 257), (16, 257, 257), (17, 257, 293), (20, 257, 401), (10, 1000, 1009), (64, 257, 4099)],
)
def test_the_field_is_the_smallest_possible(num_clients: int, min_field: int, p: int) -> None:
    assert DiversityNetworkCode(num_clients, min_field=min_field).p == p


def test_the_generator_is_identity_and_cauchy() -> None:
    code = DiversityNetworkCode(3)
    assert code.generator.shape == (3, 9)
    assert np.array_equal(code.generator[:, :3], np.eye(3))
    for i in range(3):
        for j in range(6):
            assert int(code.generator[i, 3 + j]) * (i - (3 + j)) % 257 == 1
    assert np.array_equal(np.hstack([code.block(m) for m in range(3)]), code.generator[:, 3:])


def test_fewer_relay_slots_keep_the_first_columns_of_each_block() -> None:
    full, short = DiversityNetworkCode(5), DiversityNetworkCode(5, relay_slots=2)
    assert short.generator.shape == (5, 15)
    assert all(np.array_equal(short.block(m), full.block(m)[:, :2]) for m in range(5))
    assert DiversityNetworkCode(5, relay_slots=0).generator.shape == (5, 5)


def test_codewords_are_the_messages_times_the_masked_block() -> None:
    code, field = DiversityNetworkCode(6), galois.GF(257)
    messages = field.Random((6, 11), seed=1)
    held = {0: messages[0], 2: messages[2], 5: messages[5]}
    masked = field(code.block(2).copy())
    masked[[1, 3, 4]] = 0
    expected = masked.T @ messages
    codewords = code.codewords(2, {z: Payload.of(np.asarray(message, dtype=np.uint16), 257) for z, message in held.items()})
    assert np.array_equal([codeword.symbols for codeword in codewords], np.asarray(expected))
    for slot in range(2, 7):
        coefficients = field(code.coefficients(2, slot, tuple(held)))
        assert np.array_equal(coefficients @ messages, expected[slot - 2])


def test_equations_are_the_columns_that_arrived() -> None:
    code = DiversityNetworkCode(3)
    heard = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1]])  # node 1 heard all, the others only themselves
    equations = code.equations(heard, [0, 0, 1], [[0, 1], [1, 0], [0, 0]])
    a = code.generator
    expected = [[0, 0, 1], [a[0, 4], 0, 0], [a[0, 5], a[1, 5], a[2, 5]]]
    assert np.array_equal(equations, expected)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="num_clients = 1: a cooperative code needs at least 2"):
        DiversityNetworkCode(1)
    with pytest.raises(ValueError, match=r"relay_slots = 3: must lie in 0\.\.2"):
        DiversityNetworkCode(3, relay_slots=3)
    with pytest.raises(ValueError, match=r"relayed has shape \(2, 3\): must be \(3, 2\)"):
        DiversityNetworkCode(3).equations(np.eye(3), [1, 1, 1], np.zeros((2, 3)))
    with pytest.raises(ValueError, match="direct has shape"):
        DiversityNetworkCode(3).equations(np.eye(3), [1, 1], np.zeros((3, 2)))
