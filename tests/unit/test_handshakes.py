"""Which events of a connection are a refusal, and which are not."""

import re
import struct
from contextlib import nullcontext

import pytest
import zmq

from dncfl.common.errors import AccessDenied
from dncfl.common.handshakes import MISMATCH, Handshakes

PLACE = "192.0.2.1:5555"
HUNG_UP, CLOSED = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL, zmq.Event.CLOSED


def _event(kind: zmq.Event, value: int = 0, place: str = PLACE) -> list[bytes]:
    return [struct.pack("=hi", kind, value), b"tcp://" + place.encode()]


@pytest.mark.parametrize("uses_keys", [False, True])
def test_one_event_is_enough_where_it_has_one_meaning(uses_keys: bool) -> None:
    handshakes = Handshakes(uses_keys=uses_keys)
    with pytest.raises(AccessDenied, match=r"192\.0\.2\.1:5555 does not admit this key"):
        handshakes.take(_event(zmq.Event.HANDSHAKE_FAILED_AUTH, 400), 0)
    with pytest.raises(AccessDenied, match="uses no keys" if uses_keys else "admits only those who have a key"):
        handshakes.take(_event(zmq.Event.HANDSHAKE_FAILED_PROTOCOL, MISMATCH), 0)


@pytest.mark.parametrize("uses_keys", [False, True])
def test_who_keeps_hanging_up_is_asked(uses_keys: bool) -> None:
    handshakes = Handshakes(uses_keys=uses_keys)
    for tenth in range(30):
        assert handshakes.take(_event(HUNG_UP), tenth / 10) is None
    assert handshakes.take(_event(HUNG_UP), 3.0) == PLACE
    assert handshakes.take(_event(HUNG_UP), 3.1) is None  # until that has gone on for as long again


@pytest.mark.parametrize(
    ("uses_keys", "mechanism", "reason"),
    [
        (True, "NULL", "uses no keys"),
        (True, "CURVE", "has another key than the list of keys says here"),
        (True, None, "hangs up and says nothing"),
        (False, "CURVE", "admits only those who have a key"),
        (False, "NULL", None),
        (False, None, None),
    ],
)
def test_what_the_greeting_of_one_that_hangs_up_means(uses_keys: bool, mechanism: str | None, reason: str | None) -> None:
    with pytest.raises(AccessDenied, match=f"{re.escape(PLACE)} .*{reason}") if reason else nullcontext():
        Handshakes(uses_keys=uses_keys).judge(PLACE, mechanism)


def test_who_hangs_up_once_or_is_not_there_or_slow_is_waited_for() -> None:
    handshakes = Handshakes(uses_keys=True)
    for second in range(100):
        assert not handshakes.take(_event(HUNG_UP), second)
        assert not handshakes.take(_event(HUNG_UP, place="192.0.2.2:5555"), second)
        assert not handshakes.take(_event(CLOSED if second % 2 else zmq.Event.HANDSHAKE_SUCCEEDED), second)
        assert not handshakes.take(_event(CLOSED, place="192.0.2.2:5555"), second)
    for second in (100, 110, 120, 130):  # slow: the handshake's own limit of 10 s
        assert not handshakes.take(_event(HUNG_UP), second)
    assert not handshakes.take(_event(zmq.Event.HANDSHAKE_FAILED_PROTOCOL, 0x10000000), 200)
