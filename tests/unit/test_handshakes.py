"""Which events of a connection are a refusal, and which are not."""

import struct

import pytest
import zmq

from dncfl.common.errors import AccessDenied
from dncfl.common.handshakes import MISMATCH, Handshakes

HUNG_UP, CLOSED = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL, zmq.Event.CLOSED


def _event(kind: zmq.Event, value: int = 0, place: bytes = b"tcp://192.0.2.1:5555") -> list[bytes]:
    return [struct.pack("=hi", kind, value), place]


@pytest.mark.parametrize("uses_keys", [False, True])
def test_one_event_is_enough_where_it_has_one_meaning(uses_keys: bool) -> None:
    handshakes = Handshakes(uses_keys=uses_keys)
    with pytest.raises(AccessDenied, match=r"192\.0\.2\.1:5555 does not admit this key"):
        handshakes.take(_event(zmq.Event.HANDSHAKE_FAILED_AUTH, 400), 0)
    with pytest.raises(AccessDenied, match="uses no keys" if uses_keys else "admits only those who have a key"):
        handshakes.take(_event(zmq.Event.HANDSHAKE_FAILED_PROTOCOL, MISMATCH), 0)


def test_who_keeps_hanging_up_has_another_key() -> None:
    handshakes = Handshakes(uses_keys=True)
    for tenth in range(30):
        handshakes.take(_event(HUNG_UP), tenth / 10)
    with pytest.raises(AccessDenied, match=r"192\.0\.2\.1:5555 has another key than the list of keys says here"):
        handshakes.take(_event(HUNG_UP), 3.0)
    handshakes.take(_event(HUNG_UP), 3.1)  # a SUB socket is told again only when that has gone on for as long


def test_who_hangs_up_once_or_is_not_there_or_slow_is_waited_for() -> None:
    handshakes = Handshakes(uses_keys=True)
    for second in range(100):
        handshakes.take(_event(HUNG_UP), second)
        handshakes.take(_event(HUNG_UP, place=b"tcp://192.0.2.2:5555"), second)
        handshakes.take(_event(CLOSED if second % 2 else zmq.Event.HANDSHAKE_SUCCEEDED), second)
        handshakes.take(_event(CLOSED, place=b"tcp://192.0.2.2:5555"), second)
    for second in (100, 110, 120, 130):  # slow: the handshake's own limit of 10 s
        handshakes.take(_event(HUNG_UP), second)
    handshakes.take(_event(zmq.Event.HANDSHAKE_FAILED_PROTOCOL, 0x10000000), 200)


def test_without_keys_hanging_up_says_nothing() -> None:
    handshakes = Handshakes(uses_keys=False)
    for second in range(100):
        handshakes.take(_event(HUNG_UP), second)
