"""What the PS learns: the events that `dncfl.server.protocol` goes by."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from dncfl.common.channel import Outcome
from dncfl.common.payload import Payload
from dncfl.common.wire import Report

Place = tuple[Hashable, ...]
"""Where a run stands, to be compared with."""


@dataclass(frozen=True)
class NodeJoined:
    """Somebody who can be reached at `address` asks to be node `node`, with publications at `endpoint`, a host and port."""

    node: int
    incarnation: int
    address: bytes
    endpoint: tuple[str, int]


@dataclass(frozen=True)
class NodeLoaded:
    """This node has its data and model."""

    node: int


@dataclass(frozen=True)
class NodeConnected:
    """All members of this edition of the list have subscribed to this node, and the PS has."""

    node: int
    edition: int


@dataclass(frozen=True)
class DownlinkHeard:
    """This node has subscribed to the downlink."""

    node: int
    incarnation: int


@dataclass(frozen=True)
class NodeGone:
    """This node is dead, or counts as dead; the reason is said of "it". `for_good`: nobody will start it again or need wait."""

    node: int
    reason: str
    for_good: bool = False


@dataclass(frozen=True)
class TrainingFailed:
    """Training raised an error at this node; it takes no part in the round."""

    node: int
    round: int
    reason: str


@dataclass(frozen=True)
class SlotOver:
    """A slot of a sender is over at the PS: the payload, which combines `messages`, was delivered, or nothing was."""

    sender: int
    round: int
    attempt: int
    slot: int
    outcome: Outcome
    messages: tuple[int, ...]
    payload: Payload | None = field(repr=False)


@dataclass(frozen=True)
class ReportArrived:
    """A node told how an attempt went at its side."""

    report: Report


@dataclass(frozen=True)
class Expired:
    """Nothing of what is awaited at this place has come for too long; see `ServerProtocol.place`."""

    place: Place


@dataclass(frozen=True)
class RoundDoubted:
    """Equations contradict each other or their messages do not prove themselves, and more equations may help.

    `settled`: it is known who sent what was wrong, and only messages are missing.
    """

    round: int
    settled: bool


@dataclass(frozen=True)
class RoundClosed:
    """The new model of the round is made, measured and recorded."""

    round: int


Event = (
    NodeJoined
    | NodeLoaded
    | NodeConnected
    | DownlinkHeard
    | NodeGone
    | TrainingFailed
    | SlotOver
    | ReportArrived
    | Expired
    | RoundDoubted
    | RoundClosed
)
