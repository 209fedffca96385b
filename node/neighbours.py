"""Who hears whom: the members that the PS has introduced to a node, and who has subscribed to what the node sends."""

from collections.abc import Mapping

from dncfl.common import wire
from dncfl.common.errors import WireError

Endpoint = tuple[str, int]
Member = tuple[int, str, int]
"""One life of a node: its incarnation, and the host and port where it is heard."""

MAX_HEARERS = 1024
"""Subscribers that a node remembers: four lives of each node of the largest run."""


class Neighbours:
    """The neighbours of one node: what it is told of them, and which connections follow from that."""

    def __init__(self, node: int) -> None:
        """Nobody yet."""
        self.listens = True
        """whether nodes hear each other; where nothing is relayed they need not"""
        self.edition = 0
        """of the PS's list of members, the last that came"""
        self._node = node
        self._members: Mapping[int, Member] = {}
        self._hearers: set[bytes] = set()

    def introduce(self, edition: int, members: Mapping[int, Member]) -> tuple[list[Endpoint], list[tuple[int, Endpoint]]]:
        """Take a newer list of members: the endpoints not to be heard any more, and the nodes to be heard now, with theirs."""
        before, self._members, self.edition = self._members, members, edition
        if not self.listens:
            return [], []
        gone = [member[1:] for m, member in before.items() if m != self._node and members.get(m) != member]
        come = [(m, member[1:]) for m, member in members.items() if m != self._node and before.get(m) != member]
        return gone, come

    def subscription_begins(self, topic: bytes) -> None:
        """Somebody is ready to hear this node, by a topic of its own. Raises WireError where there are too many."""
        if len(self._hearers) >= MAX_HEARERS:
            raise WireError("a subscriber too many")
        self._hearers.add(topic)

    def subscription_ends(self, topic: bytes) -> None:
        """Somebody does not hear this node any more."""
        self._hearers.discard(topic)

    def all_hear(self) -> bool:
        """Whether there are members, and all who must hear this node are ready to."""
        due = {wire.ready_topic(wire.SERVER_NAME)}
        if self.listens:
            due |= {wire.ready_topic(m, member[0]) for m, member in self._members.items() if m != self._node}
        return self.edition > 0 and due <= self._hearers

    def incarnation(self, node: int) -> int | None:
        """Which life of a node is a member."""
        return self._members[node][0] if node in self._members else None

    def endpoint(self, node: int) -> Endpoint | None:
        """Where a member is heard."""
        return self._members[node][1:] if node in self._members else None
