"""What becomes of a connection before its first message: ZeroMQ's own events, and what they mean.

libzmq 4.3.5 tells the connecting side

    HANDSHAKE_FAILED_AUTH        once, when the other side does not admit its key
    HANDSHAKE_FAILED_PROTOCOL    once, with MECHANISM_MISMATCH, when one side has keys and the other has none
    HANDSHAKE_FAILED_NO_DETAIL   again and again, when the other side has another key than expected: it hangs up. So it
                                 does when it has just ended, or cannot ask its authenticator
    CLOSED                       again and again, while nobody is there

Where both sides refuse, the other may hang up before this one has looked, so that NO_DETAIL comes before the rest.
"""

from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from dncfl.common.errors import AccessDenied

EVENTS = zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
EVENTS |= zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.CLOSED

MISMATCH: Final = int(zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)

PATIENCE_SECONDS = 3.0
"""How long the other side may keep hanging up before that counts as a refusal: one that has just ended does it once."""

ENOUGH = 5
"""How often it must have hung up, too."""


class Handshakes:
    """Judges the handshakes of one connecting socket."""

    def __init__(self, *, uses_keys: bool) -> None:
        self._uses_keys = uses_keys
        self._hung_up: dict[str, list[float]] = {}

    def take(self, frames: list[bytes], now: float) -> None:
        """One event as a monitor socket gave it, `now` in seconds. Raises AccessDenied when it proves a refusal."""
        event = parse_monitor_message(frames)
        place = event["endpoint"].decode().removeprefix("tcp://")
        match event["event"]:
            case zmq.Event.HANDSHAKE_FAILED_AUTH:
                raise AccessDenied(f"{place} does not admit this key: it must be in the list of keys there")
            case zmq.Event.HANDSHAKE_FAILED_PROTOCOL if event["value"] == MISMATCH and self._uses_keys:
                raise AccessDenied(f"{place} uses no keys, so that anybody may be there; start it with --keys")
            case zmq.Event.HANDSHAKE_FAILED_PROTOCOL if event["value"] == MISMATCH:
                raise AccessDenied(f"{place} admits only those who have a key; give --keys FOLDER")
            case zmq.Event.HANDSHAKE_FAILED_NO_DETAIL if self._uses_keys:
                times = self._hung_up.setdefault(place, [])
                times.append(now)
                if len(times) >= ENOUGH and now - times[0] >= PATIENCE_SECONDS:
                    del self._hung_up[place]
                    raise AccessDenied(f"{place} has another key than the list of keys says here, or is not what is expected")
            case _:
                self._hung_up.pop(place, None)
