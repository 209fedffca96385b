"""Who shows signs of life: what the PS knows of each node between two looks at the clock. It has no clock of its own.

All times are seconds of one monotonic clock.
"""

from dataclasses import dataclass

from dncfl.common.config import Config
from dncfl.server.events import NodeJoined

PROBE_SECONDS = 2.0
"""How long a node may take to show that it lives, when another asks to be it."""


@dataclass
class _Signs:
    heard: float
    advanced: float
    busy: bool = False
    progress: int = -1
    given_up: bool = False


class Liveness:
    """The signs of life of all nodes, and the claims of others to be one of them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._signs: dict[int, _Signs] = {}
        self._claims: dict[int, tuple[NodeJoined, float]] = {}

    def joins(self, node: int, now: float) -> None:
        """A life of this node begins."""
        self._signs[node] = _Signs(heard=now, advanced=now)
        self._claims.pop(node, None)  # it may have been this life's own, made while the one before was there

    def leaves(self, node: int) -> None:
        """Nothing more is expected of this node."""
        self._signs.pop(node, None)

    def speaks(self, node: int, now: float) -> NodeJoined | None:
        """The node said something; returns the claim of another to be it, which is refuted by that."""
        self._signs[node].heard = now
        claim = self._claims.pop(node, None)
        return None if claim is None else claim[0]

    def tells(self, node: int, now: float, *, busy: bool, progress: int) -> None:
        """What the node says of its work."""
        signs = self._signs[node]
        if (busy, progress) != (signs.busy, signs.progress):
            signs.busy, signs.progress, signs.advanced = busy, progress, now

    def begins_work(self, node: int, now: float) -> None:
        """The node has something to do that nothing need be heard of."""
        if node in self._signs:
            self._signs[node].busy, self._signs[node].advanced = True, now

    def ends_work(self, node: int) -> None:
        """Something is expected of the node from now on."""
        self._signs[node].busy = False

    def is_busy(self, node: int) -> bool:
        """Whether the node has work to do, as far as is known."""
        return node in self._signs and self._signs[node].busy

    def claims(self, joined: NodeJoined, now: float) -> bool:
        """Note that somebody asks to be a node that is there; True when nobody did yet, so that the node should be asked."""
        is_new = joined.node not in self._claims
        self._claims.setdefault(joined.node, (joined, now))
        return is_new

    def excuse(self, now: float) -> None:
        """The PS itself stood still: nobody else can be blamed for a silence."""
        for signs in self._signs.values():
            signs.heard = signs.advanced = now

    def gone(self, now: float) -> list[tuple[int, str]]:
        """The nodes that count as gone from now on, each told once, and why."""
        config, gone = self._config, []
        for node, signs in self._signs.items():
            reason = ""
            if now - signs.heard > config.patience:
                reason = f"it has been silent for {config.patience:g} s"
            elif signs.busy and now - signs.advanced > config.training_patience:
                reason = f"it has made no progress for {config.training_patience:g} s"
            elif node in self._claims and now - self._claims[node][1] > PROBE_SECONDS:
                reason = "it does not answer, and another asks to take its place"
            if reason and not signs.given_up:
                signs.given_up = True
                gone.append((node, reason))
        return gone

    def won_claims(self, now: float) -> list[NodeJoined]:
        """The claims that nobody has refuted; to be asked for after `gone`."""
        won = {node: joined for node, (joined, since) in self._claims.items() if now - since > PROBE_SECONDS}
        for node in won:
            del self._claims[node]
        return list(won.values())
