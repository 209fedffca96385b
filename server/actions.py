"""What the PS does: the actions that `dncfl.server.protocol` decides on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dncfl.common.trace import AttemptTrace
from dncfl.common.wire import Report
from dncfl.server.decoder import Decoder


@dataclass
class Member:
    """One life of a node, as the PS knows it."""

    incarnation: int
    address: bytes
    endpoint: tuple[str, int]
    loaded: bool = False
    hears: bool = False
    edition: int = 0
    """of the list of members whose subscriptions it has confirmed"""


@dataclass(frozen=True)
class Welcome:
    """Admit the one at `address` as node `node`."""

    node: int
    address: bytes


@dataclass(frozen=True)
class Refuse:
    """Turn the one at `address` away."""

    address: bytes
    reason: str


@dataclass(frozen=True)
class Dismiss:
    """Hear this life of a node no more."""

    node: int
    member: Member
    reason: str


@dataclass(frozen=True)
class Introduce:
    """Tell all members of each other, and subscribe to them."""

    edition: int
    members: Mapping[int, Member]


@dataclass(frozen=True)
class StartRound:
    """Publish the global model to those who take part."""

    round: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class AskRelay:
    """Ask all nodes for their codewords of a relay slot."""

    round: int
    attempt: int
    slot: int


@dataclass(frozen=True)
class AskRepeat:
    """Ask those who still take part for another attempt."""

    round: int
    attempt: int
    members: tuple[int, ...]


Request = StartRound | AskRelay | AskRepeat
"""What nodes are to do next."""


@dataclass(frozen=True)
class Remind:
    """Tell one node again what all were told: its connection was broken, and it may have missed it."""

    node: int
    incarnation: int
    request: Request


@dataclass(frozen=True)
class EndWaiting:
    """Tell all nodes not to wait for slot 1 of these senders: they send nothing, or they are overdue."""

    round: int
    attempt: int
    senders: tuple[int, ...]
    overdue: bool = False
    """a deadline has passed, and who knows why: links that are silent now are not waited for in later rounds either"""


@dataclass(frozen=True)
class Warn:
    """Tell the user of what went wrong while the run goes on."""

    text: str


@dataclass(frozen=True)
class CloseRound:
    """Communication is over: decode, aggregate, evaluate, record. `final`: nothing more will come, however doubtful it is."""

    round: int
    decoder: Decoder = field(repr=False)
    direct: tuple[int, ...]
    held: Mapping[int, frozenset[int]] = field(repr=False)
    """which messages each node held, as it reported"""
    attempts: tuple[AttemptTrace, ...] = field(repr=False)
    reports: tuple[Report, ...] = field(repr=False)
    """one of each node that trained"""
    final: bool = False


@dataclass(frozen=True)
class GiveUp:
    """Too few nodes are left: end the run."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """All rounds are done."""


Action = (
    Welcome
    | Refuse
    | Dismiss
    | Introduce
    | StartRound
    | AskRelay
    | AskRepeat
    | Remind
    | EndWaiting
    | Warn
    | CloseRound
    | GiveUp
    | Finish
)
