"""Who watches a run."""

from dncfl.server.records import RoundRecord


class Observer:
    """Told of what happens at the PS, from its event loop; does nothing unless a method is overridden."""

    def waiting(self, missing: tuple[int, ...]) -> None:
        """These nodes are not ready yet."""

    def communicating(self, round: int, attempt: int, slots_over: int, num_slots: int) -> None:
        """An attempt goes on, and so many of all nodes' slots are over."""

    def round_done(self, record: RoundRecord) -> None:
        """A round is recorded."""

    def warning(self, text: str) -> None:
        """Something went wrong, and the run goes on."""
