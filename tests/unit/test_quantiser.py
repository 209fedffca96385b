"""The stochastic quantiser: unbiased, bounded, counted."""

import numpy as np
import pytest

from dncfl.common.quantiser import Quantiser, adaptive_bound

DRAWS = 100_000
QUANTISER = Quantiser(levels=255, bound=0.1)


@pytest.mark.parametrize("levels", [2, 16, 255, 256])
@pytest.mark.parametrize("place", [-1.0, -0.731, -0.5, -1e-3, 0.0, 1e-5, 0.25, 0.9999, 1.0])
def test_unbiased_between_and_at_knots(levels: int, place: float) -> None:
    """place: the value as a share of the bound."""
    quantiser = Quantiser(levels=levels, bound=0.1)
    value = np.float32(place * np.float32(0.1))
    quantised, _ = quantiser.quantise(np.full(DRAWS, value), np.random.default_rng(7))
    errors = quantiser.dequantise(quantised) - float(value)
    spread = errors.std() / np.sqrt(DRAWS)
    assert abs(errors.mean()) <= 4 * spread + 2e-9  # 2e-9: 0.1 as a float32 lies 1.5e-9 above 0.1


@pytest.mark.parametrize("knot", [0, 1, 100, 127, 128, 253, 254])
def test_knots_stay_where_they_are(knot: int) -> None:
    quantiser = Quantiser(levels=255, bound=0.125)  # κ = 2^-2/254: knots are not dyadic, but most round well
    values = np.full(1000, quantiser.dequantise(np.array([knot]))[0], dtype=np.float32)
    levels, _ = quantiser.quantise(values, np.random.default_rng(0))
    assert np.abs(levels.astype(int) - knot).max() <= 1
    assert np.mean(levels == knot) > 0.99


def test_zero_is_a_knot() -> None:
    levels, _ = QUANTISER.quantise(np.zeros(DRAWS, dtype=np.float32), np.random.default_rng(0))
    assert np.all(levels == 127)
    assert abs(QUANTISER.dequantise(np.array([127]))[0]) < 1e-17


def test_errors_stay_below_one_step() -> None:
    values = np.random.default_rng(1).uniform(-0.1, 0.1, DRAWS).astype(np.float32)
    levels, clipped = QUANTISER.quantise(values, np.random.default_rng(2))
    assert np.abs(QUANTISER.dequantise(levels) - values).max() < QUANTISER.step * (1 + 1e-6)
    assert clipped == 0
    assert levels.max() <= 254


def test_clipping_is_counted_and_ends_at_the_bounds() -> None:
    values = np.array([-5, -0.2, -0.05, 0, 0.05, 0.11, 1e30], dtype=np.float32)
    levels, clipped = QUANTISER.quantise(values, np.random.default_rng(0))
    assert clipped == 4
    assert levels[[0, 1]].tolist() == [0, 0]
    assert levels[[5, 6]].tolist() == [254, 254]


def test_adaptive_bound_clips_nothing() -> None:
    values = np.random.default_rng(0).normal(0, 3, 1000).astype(np.float32)
    bound = adaptive_bound(values, otherwise=1.0)
    assert bound == float(np.abs(values).max())
    assert Quantiser(levels=255, bound=bound).quantise(values, np.random.default_rng(0))[1] == 0
    assert adaptive_bound(np.zeros(3, dtype=np.float32), otherwise=1.0) == 1.0


@pytest.mark.parametrize(("levels", "bound"), [(1, 0.1), (255, 0.0), (255, -1.0), (255, np.inf), (255, np.nan)])
def test_impossible_quantisers_are_refused(levels: int, bound: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Quantiser(levels=levels, bound=bound)
