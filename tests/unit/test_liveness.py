"""Signs of life: silence, standing still and claims, by a clock that the test holds."""

import pytest

from dncfl.common.config import load_config
from dncfl.server.events import NodeJoined
from dncfl.server.liveness import Liveness

CONFIG = load_config(None, {"patience": 10, "training_patience": 100})
CLAIM = NodeJoined(1, 77, b"address", ("h", 1))


@pytest.fixture
def liveness() -> Liveness:
    """Two nodes that joined at 0."""
    result = Liveness(CONFIG)
    for node in (0, 1):
        result.joins(node, 0.0)
    return result


def test_a_silent_node_is_told_once(liveness: Liveness) -> None:
    liveness.speaks(0, 5.0)
    assert liveness.gone(10.0) == []
    assert liveness.gone(10.1) == [(1, "it has been silent for 10 s")]
    assert liveness.gone(10.2) == []
    liveness.leaves(1)
    assert liveness.gone(16.0) == [(0, "it has been silent for 10 s")]


def test_a_busy_node_must_make_progress_however_often_it_says_that_it_lives(liveness: Liveness) -> None:
    liveness.leaves(1)
    liveness.begins_work(0, 0.0)
    assert liveness.is_busy(0)
    for second in range(1, 101):
        liveness.speaks(0, float(second))
        liveness.tells(0, float(second), busy=True, progress=min(second, 50))
        assert liveness.gone(float(second)) == []
    for second in range(101, 151):
        liveness.speaks(0, float(second))
        liveness.tells(0, float(second), busy=True, progress=50)
        assert liveness.gone(float(second)) == []
    liveness.speaks(0, 150.5)
    assert liveness.gone(150.5) == [(0, "it has made no progress for 100 s")]


def test_an_idle_node_need_not_make_progress(liveness: Liveness) -> None:
    liveness.begins_work(0, 0.0)
    liveness.ends_work(0)
    liveness.speaks(0, 1000.0)
    liveness.speaks(1, 1000.0)
    assert liveness.gone(1000.0) == []
    assert not liveness.is_busy(0)
    assert not liveness.is_busy(7)


def test_who_answers_refutes_a_claim(liveness: Liveness) -> None:
    assert liveness.claims(CLAIM, 1.0)
    assert not liveness.claims(CLAIM, 2.0)
    assert liveness.speaks(1, 2.5) == CLAIM
    assert liveness.speaks(1, 2.6) is None
    assert liveness.gone(4.0) == []
    assert liveness.won_claims(4.0) == []


def test_who_does_not_answer_gives_way(liveness: Liveness) -> None:
    liveness.claims(CLAIM, 1.0)
    assert liveness.gone(3.0) == []
    assert liveness.gone(3.1) == [(1, "it does not answer, and another asks to take its place")]
    assert liveness.won_claims(3.1) == [CLAIM]
    assert liveness.won_claims(9.0) == []


def test_a_claim_ends_with_the_life_that_it_is_about(liveness: Liveness) -> None:
    liveness.claims(CLAIM, 1.0)
    liveness.leaves(1)
    liveness.joins(1, 2.9)
    assert liveness.gone(3.1) == []
    assert liveness.won_claims(3.1) == []


def test_nobody_is_blamed_for_a_silence_of_the_servers_own(liveness: Liveness) -> None:
    liveness.begins_work(0, 0.0)
    liveness.excuse(1000.0)
    assert liveness.gone(1000.0) == []
    assert [node for node, _ in liveness.gone(1010.1)] == [0, 1]
