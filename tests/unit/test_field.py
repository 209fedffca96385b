"""GF(p): galois is the judge."""

from collections.abc import Iterable
from itertools import product

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dncfl.common.field import PrimeField, determined
from dncfl.common.kernels import FEW_ROWS, Product, exact_type
from dncfl.common.payload import BYTES_OF_ESCAPE, Payload
from dncfl.common.primes import MAX_PRIME, smallest_prime
from dncfl.common.threads import SYMBOLS_PER_THREAD

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


def _payloads(symbols: Iterable[NDArray[np.int64]], p: int) -> list[Payload]:
    """Rows of bytes as messages are, others as codewords are."""
    return [Payload.of(row.astype(np.uint8 if row.max() < 256 else np.uint16), p) for row in symbols]


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("n", [1, 4, 5, 9, 10, 11, 16, 20, 32, 40, 64])
@pytest.mark.parametrize("num_bytes", [0, 0.5, 1], ids=["codewords", "both", "messages"])
def test_combine_agrees_with_galois(p: int, n: int, num_bytes: float) -> None:
    field = galois.GF(p)
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, p, (7, n)), rng.integers(0, p, (n, 1037))
    b[: round(num_bytes * n)] %= 255
    combined = PrimeField(p).combine(a.astype(np.uint16), _payloads(b, p))
    assert np.array_equal([payload.symbols for payload in combined], np.asarray(field(a) @ field(b)))


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("n", [1, 10, 16, 20, 32, 63, 64, 255])
def test_combine_is_exact_at_the_largest_sums_of_either_sign(p: int, n: int) -> None:
    """The residues farthest from zero are p//2 and p//2 + 1: their products make the largest partial sums."""
    for left, right in product((p // 2, p // 2 + 1, p - 1, 1), (p // 2, p // 2 + 1, p - 1, 0, 255)):
        payload = Payload.of(np.full(7, right, dtype=np.uint8 if right < 256 else np.uint16), p)
        (combined,) = PrimeField(p).combine(np.full((1, n), left, dtype=np.uint16), [payload] * n)
        assert np.all(combined.symbols == left * right * n % p)


def test_every_sum_that_float32_takes_is_reduced_rightly() -> None:
    """All sums f·x + g·y + h·z of symbols of GF(257), up to the largest that ten terms give, by their remainders."""
    p = 257
    x, y = np.divmod(np.arange(257 * 257), 257)
    for f in (1, 127, 128, 129, 256):
        factors = np.array([[f, 128, 128, 128, 128, 128, 128, 128, 128, 1]], dtype=np.uint16)
        (combined,) = PrimeField(p).combine(factors, _payloads([x, *[y] * 8, x], p))
        assert np.array_equal(combined.symbols, (f * x + 128 * 8 * y + x) % p)


@pytest.mark.parametrize(
    ("p", "n", "real"),
    [(257, 164, np.float32), (257, 165, np.float64), (1031, 32, np.float32), (4099, 64, np.float64)],
)
def test_which_products_of_messages_take_float32(p: int, n: int, real: type) -> None:
    assert exact_type(p, n, wide=False) is real
    assert real is np.float64 or n * (p // 2) * 128 + p < 2**23 / 3


@pytest.mark.parametrize("p", [257, 4099])
@pytest.mark.parametrize("d", [1, FEW_ROWS - 1, 3 * FEW_ROWS + 5, 3 * SYMBOLS_PER_THREAD + 77])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_products_span_blocks_and_threads(p: int, d: int, num_threads: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, p, (4, 5)), rng.integers(0, p, (5, d))
    product = Product(a.astype(np.uint16), _payloads(b, p), p, num_threads)
    assert np.array_equal(product.symbols(), a @ b % p)
    if p == 257:
        assert np.array_equal([payload.symbols for payload in product.packed()], a @ b % p)


def test_combine_makes_room_when_nearly_all_symbols_are_escaped() -> None:
    d = 2 * FEW_ROWS + 7
    symbols = np.full(d, 256, dtype=np.uint16)
    symbols[5] = 0
    factors = np.array([[1], [2], [256]], dtype=np.uint16)
    alike, twice, less = PrimeField(257).combine(factors, [Payload.of(symbols, 257)])
    assert alike.escapes.size == d - 1
    assert 2 * d < alike.escapes.nbytes <= BYTES_OF_ESCAPE * d, "sockets must let this frame pass"
    assert np.array_equal(alike.symbols, symbols)
    assert np.array_equal(twice.symbols, 2 * symbols % 257)
    assert np.array_equal(less.symbols, symbols != 0)


def test_factors_and_payloads_must_fit() -> None:
    payloads = _payloads(np.ones((3, 4), dtype=np.int64), 257)
    with pytest.raises(ValueError, match=r"factors \(1, 2\) do not fit 3 payloads"):
        PrimeField(257).combine(np.ones((1, 2), dtype=np.uint16), payloads)
    with pytest.raises(ValueError, match=r"factors \(1, 0\) do not fit 0 payloads"):
        PrimeField(257).combine(np.ones((1, 0), dtype=np.uint16), [])
    with pytest.raises(ValueError, match=r"payloads of \[4, 5\] symbols"):
        PrimeField(257).combine(np.ones((1, 2), dtype=np.uint16), [payloads[0], Payload(np.zeros(5, dtype=np.uint8))])


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
