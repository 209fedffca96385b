"""The wire format: a small msgpack header that says everything, and raw payload frames without copies.

A header is a msgpack map whose `kind` names one of the classes below. Each is checked field by field as it comes off
the network: unknown fields, wrong types and values outside their limits are refused with a WireError. Nothing is ever
unpickled.

Frames on each socket:

    node DEALER ⇄ ROUTER PS   header                                       control, both directions
    PS XPUB → SUB node        topic, header [, θ as float32]               Model, Repeat, RelaySlot, StopWaiting
    node XPUB → SUB others    topic, header, plane, escapes, digests       Transmission; see `dncfl.common.radio`
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgpack
import pydantic
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from dncfl.common.config import MAX_CLIENTS
from dncfl.common.errors import WireError

MAX_HEADER = 64 * 1024
"""Bytes of a header: a configuration with a full 255 × 256 link table goes in a frame of its own, see Welcome."""

TOPIC_MESSAGE = b"U"
"""Slot-1 messages: for the peers and the PS."""

TOPIC_CODEWORD = b"C"
"""Relay-slot codewords: for the PS alone."""

TOPIC_DOWNLINK = b"D"
"""Global models, and requests to relay or to repeat: for all nodes."""

SERVER_NAME = "ps"

MAX_ROUND = 2**32 - 1
MAX_ATTEMPT = 2**32 - 1


def ready_topic(subscriber: int | str, incarnation: int = 0) -> bytes:
    """The topic that one life of one subscriber alone subscribes to, after all others: its arrival confirms them.

    It sorts behind the other topics, since a socket that reconnects repeats its subscriptions in that order.
    """
    return f"~{subscriber}.{incarnation}".encode()


_READY = re.compile(rb"~(ps|\d{1,3})\.(\d{1,19})")


def decode_subscription(frames: Sequence[bytes | memoryview], *topics: bytes) -> tuple[bool, bytes, tuple[str, int] | None]:
    """Whether a subscription begins, its topic, and whose it is where that is a ready topic: a subscriber and its incarnation.

    Raises WireError for any other topic than these, and the empty one, which is all of them.
    """
    change, topic = bytes(frames[0][:1]), bytes(frames[0][1:])
    ready = _READY.fullmatch(topic)
    if len(frames) != 1 or change not in (b"\x00", b"\x01") or (ready is None and topic not in (b"", *topics)):
        raise WireError("a subscription to what there is not")
    return change == b"\x01", topic, ready and (ready[1].decode(), int(ready[2]))


Node = Annotated[int, Field(ge=0, lt=MAX_CLIENTS, description="node number, from 0")]
Round = Annotated[int, Field(ge=1, le=MAX_ROUND, description="round, from 1")]
Incarnation = Annotated[int, Field(ge=1, lt=2**63, description="one life of a node: drawn anew whenever it joins")]
Attempt = Annotated[int, Field(ge=1, le=MAX_ATTEMPT, description="attempt within the round, from 1")]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,250}$", description="host name or IPv4 address")]
Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, Field(max_length=8000, description="words for a person")]
Nodes = Annotated[tuple[Node, ...], Field(max_length=MAX_CLIENTS, strict=False)]


class Header(BaseModel):
    """What all headers share."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    version: Literal[6] = 6
    """Version of the wire format; it changes whenever a frame changes its meaning."""


class Join(Header):
    """Node → PS: I am here; my publications are at this address."""

    kind: Literal["join"] = "join"
    node: Node
    incarnation: Incarnation
    host: Host
    port: Port


class Welcome(Header):
    """PS → node: you take part; this is the run.

    Two frames follow: the configuration as JSON, and the sizes of the model's tensors as 32-bit little-endian words.
    """

    kind: Literal["welcome"] = "welcome"
    downlink_port: Port
    """of the PS's downlink, at the address of its control socket"""


class Refused(Header):
    """PS → node: you cannot take part."""

    kind: Literal["refused"] = "refused"
    reason: Text


class Rejoin(Header):
    """PS → node: you are no member of this run, or not any more; join anew."""

    kind: Literal["rejoin"] = "rejoin"


class Loaded(Header):
    """Node → PS: I have my data and model; introduce me to the others."""

    kind: Literal["loaded"] = "loaded"
    node: Node


class Peers(Header):
    """PS → node: these are the members now, and the addresses of their publications; it replaces what was said before."""

    kind: Literal["peers"] = "peers"
    edition: int = Field(ge=1, lt=2**32, description="number of this list, to be given back in Connected")
    nodes: Nodes
    incarnations: Annotated[tuple[Incarnation, ...], Field(max_length=MAX_CLIENTS, strict=False)]
    hosts: Annotated[tuple[Host, ...], Field(max_length=MAX_CLIENTS, strict=False)]
    ports: Annotated[tuple[Port, ...], Field(max_length=MAX_CLIENTS, strict=False)]

    def check(self) -> None:
        """Raise WireError when the columns differ in length, or name a node twice."""
        if not len(self.nodes) == len(set(self.nodes)) == len(self.incarnations) == len(self.hosts) == len(self.ports):
            raise WireError(f"a list of {len(self.nodes)} peers whose columns do not fit")

    @property
    def members(self) -> dict[int, tuple[int, str, int]]:
        """Incarnation, host and port by node. Raises WireError as `check` does."""
        self.check()
        return dict(zip(self.nodes, zip(self.incarnations, self.hosts, self.ports, strict=True), strict=True))


class Connected(Header):
    """Node → PS: all members of this edition of the list, and the PS, have subscribed to me."""

    kind: Literal["connected"] = "connected"
    node: Node
    edition: int = Field(ge=1, lt=2**32)


class Alive(Header):
    """Both directions: I am still here. The PS answers each with another."""

    kind: Literal["alive"] = "alive"
    edition: int = Field(default=0, ge=0, lt=2**32, description="of the list of peers that the node has, 0 for none")
    busy: bool = False
    """whether the node is loading data or training, so that nothing need be heard of it"""
    progress: int = Field(default=0, ge=0, description="steps of work that the node has done so far")


class Ping(Header):
    """PS → node: are you there? The node answers with Alive."""

    kind: Literal["ping"] = "ping"


class Report(Header):
    """Node → PS: how one attempt went at this node. For the record only: decoding never uses it."""

    kind: Literal["report"] = "report"
    node: Node
    round: Round
    attempt: Attempt
    heard: str = Field(pattern=r"^[del-]*$", max_length=MAX_CLIENTS, description="a trace letter per sender, for slot 1")
    train_seconds: float = Field(ge=0, le=1e9, description="seconds of local training")
    encode_seconds: float = Field(ge=0, le=1e9, description="seconds of quantising and encoding the message")
    train_loss: float = Field(ge=-1e39, le=1e39, description="mean loss of the last local epoch, a 32-bit float")
    num_clipped: int = Field(ge=0, le=2**31, description="values of the update outside the quantiser's bounds")
    bytes_from_peers: int = Field(ge=0, le=2**48, description="bytes of slot-1 messages from peers in this attempt so far")


class TrainingFailed(Header):
    """Node → PS: training raised an error; I take no part in this round, but stay."""

    kind: Literal["training_failed"] = "training_failed"
    node: Node
    round: Round
    reason: Text


class Failed(Header):
    """Node → PS: I stop with an error."""

    kind: Literal["failed"] = "failed"
    node: Node
    reason: Text


class Stop(Header):
    """PS → node: the run is over; leave."""

    kind: Literal["stop"] = "stop"
    completed: bool = Field(description="whether all rounds are done")
    reason: Text


class Model(Header):
    """PS → all nodes: the global model of a round; θ follows."""

    kind: Literal["model"] = "model"
    round: Round
    members: Nodes
    """who takes part in the round; nobody waits for others"""


class Repeat(Header):
    """PS → all nodes: send slot 1 and the relay slots once more."""

    kind: Literal["repeat"] = "repeat"
    round: Round
    attempt: Attempt
    members: Nodes
    """who is left of the round's members"""


class RelaySlot(Header):
    """PS → all nodes: what has come is not enough; send your codeword of this slot."""

    kind: Literal["relay_slot"] = "relay_slot"
    round: Round
    attempt: Attempt
    slot: int = Field(ge=2, le=MAX_CLIENTS, description="relay slot, from 2")


class StopWaiting(Header):
    """PS → all nodes: do not wait for slot 1 of these senders; what has not come by now counts as lost."""

    kind: Literal["stop_waiting"] = "stop_waiting"
    round: Round
    attempt: Attempt
    senders: Nodes
    overdue: bool = Field(description="whether these links are not to be waited for until something comes over them again")


class Transmission(Header):
    """Node → peers and PS: what the sender transmits in one slot; the symbols follow."""

    kind: Literal["transmission"] = "transmission"
    sender: Node
    incarnation: Incarnation
    round: Round
    attempt: Attempt
    slot: int = Field(ge=1, le=MAX_CLIENTS, description="1 for the sender's own message, 2..M for codewords")
    messages: Annotated[
        tuple[Node, ...],
        Field(min_length=1, max_length=MAX_CLIENTS, strict=False, description="nodes whose messages it combines"),
    ]

    def check(self, *, num_clients: int, last_slot: int, last_round: int = MAX_ROUND, last_attempt: int = MAX_ATTEMPT) -> None:
        """Raise WireError where this cannot be a transmission in a run of this size."""
        if self.round > last_round or self.attempt > last_attempt:
            where = f"round {self.round}, attempt {self.attempt}"
            raise WireError(f"a transmission of {where}: there are {last_round} rounds of up to {last_attempt} attempts")
        if self.sender >= num_clients or max(self.messages) >= num_clients or self.slot > last_slot:
            raise WireError(f"slot {self.slot} of node {self.sender} with messages {self.messages}: there is no such thing")
        if self.slot == 1 and self.messages != (self.sender,):
            raise WireError(f"node {self.sender} sends messages {self.messages} in slot 1: only its own is allowed")


FromNode = Annotated[Join | Loaded | Connected | Alive | Report | TrainingFailed | Failed, Field(discriminator="kind")]
FromServer = Annotated[Welcome | Refused | Rejoin | Peers | Alive | Ping | Stop, Field(discriminator="kind")]
Downlink = Annotated[Model | Repeat | RelaySlot | StopWaiting, Field(discriminator="kind")]

FROM_NODE: TypeAdapter[FromNode] = TypeAdapter(FromNode)
FROM_SERVER: TypeAdapter[FromServer] = TypeAdapter(FromServer)
DOWNLINK: TypeAdapter[Downlink] = TypeAdapter(Downlink)
TRANSMISSION: TypeAdapter[Transmission] = TypeAdapter(Transmission)


T = TypeVar("T")


def encode(header: Header) -> bytes:
    """A header as a msgpack frame."""
    packed: bytes = msgpack.packb(header.model_dump())
    return packed


def decode(frame: bytes | memoryview, allowed: TypeAdapter[T]) -> T:
    """The header in a frame, if it is one of those allowed here. Raises WireError."""
    if len(frame) > MAX_HEADER:
        raise WireError(f"a header of {len(frame)} bytes: at most {MAX_HEADER} are allowed")
    try:
        fields = msgpack.unpackb(
            frame,
            strict_map_key=True,
            max_str_len=8000 * 4,
            max_bin_len=0,
            max_ext_len=0,
            max_array_len=MAX_CLIENTS,
            max_map_len=32,
        )
        return allowed.validate_python(fields)
    except pydantic.ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))
        raise WireError(f"a header that is not allowed here: {place[:100]}: {detail['msg'][:300]}") from None
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"a header that is no msgpack: {error}") from None
