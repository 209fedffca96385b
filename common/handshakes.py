"""What becomes of a connection before its first message: ZeroMQ's own events, and what they mean.

libzmq 4.3.5 tells the connecting side

    HANDSHAKE_FAILED_AUTH        once, when the other side does not admit its key
    HANDSHAKE_FAILED_PROTOCOL    once, with MECHANISM_MISMATCH, when one side has keys and the other has none
    HANDSHAKE_FAILED_NO_DETAIL   again and again, when the other side hangs up: it has another key than expected, has just
                                 ended, or cannot ask its authenticator
    CLOSED                       again and again, while nobody is there

Where both sides refuse, as they do when one has keys and the other has none, the other one may hang up before this one has
looked, a hundred times in a row. So who keeps hanging up is asked for its greeting, which names what it wants.
"""

from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from dncfl.common.errors import AccessDenied

EVENTS = zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
EVENTS |= zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.CLOSED

MISMATCH: Final = int(zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)

PATIENCE_SECONDS = 3.0
"""How long the other side may keep hanging up before it is asked: one that has just ended does it once."""

ENOUGH = 5
"""How often it must have hung up, too."""


class Handshakes:
    """Judges the handshakes of one connecting socket."""

    def __init__(self, *, uses_keys: bool) -> None:
        self._uses_keys = uses_keys
        self._hung_up: dict[str, list[float]] = {}

    def take(self, frames: list[bytes], now: float) -> str | None:
        """One event as a monitor socket gave it, `now` in seconds. Returns the place, host:port, that must be asked, if any.

        Raises AccessDenied when the event proves a refusal.
        """
        event = parse_monitor_message(frames)
        place = event["endpoint"].decode().removeprefix("tcp://")
        match event["event"]:
            case zmq.Event.HANDSHAKE_FAILED_AUTH:
                raise AccessDenied(f"{place} does not admit this key: it must be in the list of keys there")
            case zmq.Event.HANDSHAKE_FAILED_PROTOCOL if event["value"] == MISMATCH:
                self.judge(place, "NULL" if self._uses_keys else "CURVE")
            case zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:
                times = self._hung_up.setdefault(place, [])
                times.append(now)
                if len(times) >= ENOUGH and now - times[0] >= PATIENCE_SECONDS:
                    del self._hung_up[place]
                    return place
            case _:
                self._hung_up.pop(place, None)
        return None

    def judge(self, place: str, mechanism: str | None) -> None:
        """What the greeting of one that hung up says. Raises AccessDenied unless the reason may pass."""
        match self._uses_keys, mechanism:
            case True, "NULL":
                raise AccessDenied(
                    f"{place} uses no keys, so that anybody may be there; give --keys there, or leave it out here"
                )
            case True, "CURVE":
                raise AccessDenied(f"{place} has another key than the list of keys says here")
            case True, _:
                raise AccessDenied(f"{place} hangs up and says nothing that a PS or a node of dncfl would say")
            case False, "CURVE":
                raise AccessDenied(f"{place} admits only those who have a key; give --keys FOLDER")
