"""The methods' averages, computed here by hand from dequantised updates."""

from itertools import permutations

import numpy as np
import pytest

from dncfl.common.config import Config, load_config
from dncfl.common.errors import ChecksumError
from dncfl.common.message import MessageFormat, encode_message
from dncfl.common.payload import Payload
from dncfl.common.threads import SYMBOLS_PER_THREAD
from dncfl.common.update import Part, QuantisedUpdate
from dncfl.server.aggregation import aggregate
from dncfl.server.policy import must_repeat
from tests.unit.updates import format_of, update_of

THETA = np.array([0.5, -0.25, 1.0], dtype=np.float32)
LEVELS = {0: [0, 127, 254], 1: [254, 254, 254], 3: [100, 127, 130]}
STEP = 0.2 / 254
FORMAT = format_of(3)


def _messages(bounds: dict[int, float] | None = None) -> dict[int, Payload]:
    return {
        m: encode_message(
            update_of(np.array(levels, dtype=np.uint8), (bounds or {}).get(m, 0.1)),
            257,
            round=4,
            sender=m,
        )
        for m, levels in LEVELS.items()
    }


def _sum_of_updates() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    total = np.zeros(3)
    for levels in LEVELS.values():
        total += [STEP * level - 0.1 for level in levels]
    return total


def _config(method: str, variant: str = "models") -> Config:
    return load_config(None, {"clients": 5, "method": method, "anonymous_variant": variant})


@pytest.mark.parametrize("method", ["dnc", "repetition", "qfl", "nonanonymous"])
def test_the_mean_of_what_was_received(method: str) -> None:
    expected = THETA + _sum_of_updates() / 3
    assert aggregate(_config(method), FORMAT, THETA, _messages(), 4) == pytest.approx(expected, abs=1e-7)


def test_anonymous_models_shrink_the_model_by_each_outage() -> None:
    models = [THETA + np.array([STEP * level - 0.1 for level in levels]) for levels in LEVELS.values()]
    assert aggregate(_config("anonymous"), FORMAT, THETA, _messages(), 4) == pytest.approx(sum(models) / 5, abs=1e-7)


def test_anonymous_updates_divide_by_all() -> None:
    expected = THETA + _sum_of_updates() / 5
    assert aggregate(_config("anonymous", "updates"), FORMAT, THETA, _messages(), 4) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("method", ["dnc", "qfl", "nonanonymous", "anonymous"])
def test_nothing_received_keeps_the_model(method: str) -> None:
    assert np.array_equal(aggregate(_config(method), FORMAT, THETA, {}, 4), THETA)


@pytest.mark.parametrize("bounds", [None, {0: 0.1, 1: 0.25, 3: 0.0625}])
def test_no_bit_depends_on_the_order_of_arrival(bounds: dict[int, float] | None) -> None:
    messages = _messages(bounds)
    results = {
        aggregate(_config("dnc"), FORMAT, THETA, {m: messages[m] for m in order}, 4).tobytes()
        for order in permutations(messages)
    }
    assert len(results) == 1


def test_large_models_are_averaged_on_several_threads_alike() -> None:
    d = 2 * SYMBOLS_PER_THREAD + 3
    rng = np.random.default_rng(0)
    theta = rng.normal(0, 1, d).astype(np.float32)
    levels = {m: rng.integers(0, 255, d, dtype=np.uint8) for m in range(3)}
    messages = {m: encode_message(update_of(chosen), 257, round=4, sender=m) for m, chosen in levels.items()}
    expected = theta + sum(STEP * chosen - 0.1 for chosen in levels.values()) / 3
    assert np.abs(aggregate(_config("dnc"), format_of(d), theta, messages, 4) - expected).max() < 1e-6


def test_each_update_is_read_with_its_own_bound() -> None:
    bounds = {0: 0.1, 1: 0.25, 3: 0.0625}
    updates = [np.array([2 * bounds[m] / 254 * level - bounds[m] for level in levels]) for m, levels in LEVELS.items()]
    assert aggregate(_config("dnc"), FORMAT, THETA, _messages(bounds), 4) == pytest.approx(THETA + sum(updates) / 3, abs=1e-7)


def test_each_part_of_an_update_is_read_with_its_own_bound() -> None:
    """Also where a part is empty, and where some updates have a bound in common."""
    bounds = {0: [0.1, 9.0, 0.5], 1: [0.25, 1.0, 0.5], 3: [0.1, 2.0, 1e-3]}
    messages = {}
    for m, levels in LEVELS.items():
        parts = tuple(map(Part, (1, 0, 2), bounds[m]))
        update = QuantisedUpdate(levels=np.array(levels, dtype=np.uint8), parts=parts, num_samples=1)
        messages[m] = encode_message(update, 257, round=4, sender=m)
    of_each = {m: [first, last, last] for m, (first, _, last) in bounds.items()}
    updates = [[2 * bound / 254 * level - bound for bound, level in zip(of_each[m], LEVELS[m], strict=True)] for m in LEVELS]
    expected = THETA + np.sum(updates, axis=0) / 3
    assert aggregate(_config("dnc"), MessageFormat(255, (1, 0, 2)), THETA, messages, 4) == pytest.approx(expected, abs=1e-7)


def test_parts_are_averaged_alike_on_several_threads() -> None:
    """Each thread has columns of its own, which begin and end within a part."""
    d = 4 * SYMBOLS_PER_THREAD + 3
    sizes = (5, d // 3, d - d // 3 - 5)
    rng = np.random.default_rng(0)
    theta = rng.normal(0, 1, d).astype(np.float32)
    expected, messages = theta.astype(np.float64), {}
    for m in range(3):
        levels, bounds = rng.integers(0, 255, d, dtype=np.uint8), rng.uniform(0.1, 1, 3)
        update = QuantisedUpdate(levels=levels, parts=tuple(map(Part, sizes, bounds)), num_samples=1)
        messages[m] = encode_message(update, 257, round=4, sender=m)
        expected += (2 / 254 * levels - 1) * np.repeat(bounds, sizes) / 3
    assert np.abs(aggregate(_config("dnc"), MessageFormat(255, sizes), theta, messages, 4) - expected).max() < 1e-6


def test_a_message_of_another_model_is_refused() -> None:
    with pytest.raises(ChecksumError, match="has 19 symbols: must be 20"):
        aggregate(_config("dnc"), format_of(4), np.zeros(4, dtype=np.float32), _messages(), 4)


def test_a_damaged_message_is_refused() -> None:
    messages = _messages()
    messages[1].plane[-1] = 3
    with pytest.raises(ChecksumError, match="node 1 in round 4"):
        aggregate(_config("dnc"), FORMAT, THETA, messages, 4)


@pytest.mark.parametrize(
    ("settings", "attempt", "involved", "recoverable", "repeats"),
    [
        ({}, 1, [0, 1], [0, 1], False),
        ({}, 1, [0, 1], [0], True),
        ({}, 1, [], [], True),
        ({}, 10, [0, 1], [0], False),
        ({}, 10, [], [], False),
        ({"max_attempts": 2}, 1, [], [], True),
        ({"max_attempts": 2}, 2, [], [], False),
        ({"decode": "partial"}, 1, [0, 1], [0], False),
        ({"decode": "partial"}, 1, [], [], False),
        ({"method": "nonanonymous"}, 1, [], [], False),
        ({"method": "anonymous"}, 1, [], [], False),
    ],
)
def test_when_communication_repeats(
    settings: dict[str, object], attempt: int, involved: list[int], recoverable: list[int], repeats: bool
) -> None:
    assert must_repeat(load_config(None, settings), attempt, involved, recoverable) is repeats
