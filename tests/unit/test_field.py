"""GF(p): galois is the judge."""

from itertools import product

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dncfl.common import kernels
from dncfl.common.field import MAX_PRIME, PIECE, PrimeField, determined, smallest_prime

PRIMES = [257, 401, 1031, 1607, 4099, MAX_PRIME]
"""The p of M <= 16, of 20, 32, 40 and 64, and the largest."""


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("n", [1, 10, 64, 255])
def test_matmul_agrees_with_galois(p: int, n: int) -> None:
    field = galois.GF(p)
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, p, (7, n)), rng.integers(0, p, (n, 33))
    result = PrimeField(p).matmul(a.astype(np.uint16), b.astype(np.uint16))
    assert np.array_equal(result, np.asarray(field(a) @ field(b)))


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("n", [1, 32, 255])
def test_matmul_is_exact_at_the_largest_sums(p: int, n: int) -> None:
    largest = np.full((3, n), p - 1, dtype=np.uint16)
    expected = (p - 1) ** 2 * n % p  # Python's whole numbers
    assert np.all(PrimeField(p).matmul(largest, largest.T.copy()) == expected)


@pytest.mark.parametrize("p", [257, 1031, MAX_PRIME])
def test_matmul_reduces_every_multiple_of_p_and_its_neighbours(p: int) -> None:
    """The estimated quotient errs where a sum is next to a multiple of p: take rows whose sums hit those."""
    symbols = np.arange(p, dtype=np.uint16)[None, :]
    for factor in (1, 2, p // 2, p - 1):
        products = PrimeField(p).matmul(np.array([[factor]], dtype=np.uint16), symbols)
        assert np.array_equal(products[0], np.arange(p) * factor % p)


def test_matmul_spans_blocks() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 257, (9, 10)).astype(np.uint16)
    b = rng.integers(0, 257, (10, 10_001)).astype(np.uint16)
    assert np.array_equal(PrimeField(257).matmul(a, b), a.astype(np.int64) @ b.astype(np.int64) % 257)


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("n", [1, 4, 5, 9, 10, 16, 20, 32, 40, 64])
def test_combine_agrees_with_galois(p: int, n: int) -> None:
    """Through the compiled product where it is exact, and past it where it is not."""
    field = galois.GF(p)
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, p, (n, n)), rng.integers(0, p, (n, 1037))
    combined = PrimeField(p).combine(a.astype(np.uint16), list(b.astype(np.uint16)))
    assert np.array_equal(combined, np.asarray(field(a) @ field(b)))


@pytest.mark.parametrize(("p", "n"), [(257, 10), (257, 16), (401, 20), (1031, 32), (1031, 63), (1601, 40), (4099, 64)])
def test_combine_is_exact_at_the_largest_sums_of_either_sign(p: int, n: int) -> None:
    """The residues farthest from zero are p//2 and p//2 + 1: their products make the largest partial sums."""
    for left, right in product((p // 2, p // 2 + 1, p - 1, 1), repeat=2):
        factors = np.full((1, n), left, dtype=np.uint16)
        payloads = [np.full(7, right, dtype=np.uint16)] * n
        assert np.all(PrimeField(p).combine(factors, payloads) == left * right * n % p)


def test_which_sizes_the_compiled_product_takes() -> None:
    assert [kernels.fits(*size) for size in ((257, 255), (401, 20), (1031, 32), (1031, 63))] == [True] * 4
    assert [kernels.fits(*size) for size in ((1031, 64), (1601, 40), (4099, 64))] == [False] * 3


def test_combine_spans_pieces() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 257, (9, 10)), rng.integers(0, 257, (10, 3 * PIECE + 5))
    combined = PrimeField(257).combine(a.astype(np.uint16), list(b.astype(np.uint16)))
    assert np.array_equal(combined, a @ b % 257)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([257, 401, 1607]), st.integers(1, 8), st.integers(1, 8), st.integers(0, 2**32), st.floats(0, 1))
def test_row_reduce_agrees_with_galois(p: int, rows: int, columns: int, seed: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, p, (rows, columns)) * (rng.random((rows, columns)) < density)
    reduced, pivots = PrimeField(p).row_reduce(matrix.astype(np.uint16))
    expected = np.asarray(galois.GF(p)(matrix).row_reduce())
    assert np.array_equal(reduced, expected[: len(reduced)])
    assert not expected[len(reduced) :].any()
    assert [int(np.flatnonzero(row)[0]) for row in reduced] == list(pivots)


def test_determined_needs_a_row_of_its_own() -> None:
    assert determined(np.array([[1, 0, 3], [0, 1, 0]])) == (1,)
    assert determined(np.zeros((0, 3), dtype=np.uint16)) == ()


def test_inverse() -> None:
    field = PrimeField(257)
    assert all(a * field.inverse(a) % 257 == 1 for a in range(1, 257))
    with pytest.raises(ZeroDivisionError, match="no inverse"):
        field.inverse(257)


@pytest.mark.parametrize("p", [0, 1, 256, 65_537])
def test_no_field_of_this_size(p: int) -> None:
    with pytest.raises(ValueError, match=f"p = {p}"):
        PrimeField(p)


@pytest.mark.parametrize(("minimum", "prime"), [(2, 2), (257, 257), (258, 263), (400, 401), (1600, 1601), (4096, 4099)])
def test_smallest_prime(minimum: int, prime: int) -> None:
    assert smallest_prime(minimum) == prime
