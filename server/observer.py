"""Who watches a run."""

from dataclasses import dataclass

from dncfl.server.records import RoundRecord


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where an attempt stands."""

    round: int
    attempt: int
    slots_over: int
    """of all nodes' open slots"""
    num_slots: int
    awaited: frozenset[int]
    """the nodes that something is awaited from"""


class Observer:
    """Told of what happens at the PS, from its event loop; does nothing unless a method is overridden."""

    def waiting(self, missing: tuple[int, ...]) -> None:
        """These nodes are not ready yet."""

    def joined(self, node: int) -> None:
        """A node that was not here before asks to take part, and is admitted."""

    def communicating(self, progress: Progress) -> None:
        """An attempt goes on."""

    def round_done(self, record: RoundRecord) -> None:
        """A round is recorded."""

    def notice(self, text: str) -> None:
        """Something worth a line, which is no trouble."""

    def warning(self, text: str) -> None:
        """Something went wrong, and the run goes on."""
