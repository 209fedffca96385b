"""What is asked of the theory."""

from dataclasses import dataclass

from dncfl.common.theory import Bound, Learning, convergence_bound, most_local_steps, participants_bound


@dataclass(frozen=True, kw_only=True)
class Theory:
    """What is asked, and K̄ and K*, which all else follows from."""

    num_clients: int
    pe: float
    q: float
    q_is_given: bool
    rounds: int
    learning: Learning

    @property
    def participants(self) -> float:
        """K*."""
        return participants_bound(self.q, self.num_clients)

    def condition_holds(self, rounds: int) -> bool:
        """Whether I is small enough for Theorem 1 after this many rounds."""
        return self.learning.local_steps <= most_local_steps(rounds, self.participants)

    def bound(self, rounds: int) -> Bound:
        """The right-hand side after this many rounds."""
        return convergence_bound(self.learning, rounds, self.participants)
