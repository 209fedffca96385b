"""What the letter says in theory: how likely a message is lost, how many nodes count, and how fast training converges.

q is the probability that a message is not recovered, and W the set of those that are. The letter takes q for P_e^{2M-1}.
"""

from dataclasses import dataclass
from math import comb, expm1, log, sqrt

import numpy as np
from numpy.typing import ArrayLike


def dominant_outage(pe: float, num_clients: int) -> float:
    """P_e^{2M-1}: no other node hears the message, and the PS hears none of its node's M transmissions (section IV-A).

    The exponent is right, and so is the factor 1 for M >= 3 and small P_e. For M = 2 other events of three failures are as
    likely, and the outage is 4 P_e³. At P_e = 0.8 and M = 4 the outage is 0.44 in place of 0.21 (`dncfl outage`).
    """
    return float(pe ** (2 * num_clients - 1))


def mean_participants(q: float, num_clients: int) -> float:
    """K̄ = 1 / E[1/|W| given that W is not empty], with messages lost independently (Lemma 1, eq. bar_k).

    1/K̄ = Σ_l (1/l) C(M,l) (1-q)^l q^{M-l} / (1 - q^M). Raises ValueError unless 0 <= q < 1.
    """
    _require_probability(q)
    sizes = range(1, num_clients + 1)
    terms = (comb(num_clients, size) * (1 - q) ** size * q ** (num_clients - size) / size for size in sizes)
    return _not_empty(q, num_clients) / sum(terms)


def participants_bound(q: float, num_clients: int) -> float:
    """K* = (M+1)(1-q)(1-q^M)/2 <= K̄ (Lemma 1, eq. upper_K-2).

    It is equal for M = 1 and q = 0 only. For small q it is about half of K̄, (M+1)/2 against M; for q -> 1 it goes to 0, and
    K̄ to 1. It bounds the K̄ of the same q: the letter's K*, of P_e^{2M-1}, may lie above the K̄ of the code where links
    are very bad. At M = 4, P_e = 0.8 it is 1.972, the code's q is 0.437, and K̄ of this q is 1.931.
    Raises ValueError unless 0 <= q < 1.
    """
    _require_probability(q)
    return (num_clients + 1) * (1 - q) * _not_empty(q, num_clients) / 2


def _not_empty(q: float, num_clients: int) -> float:
    """1 - q^M, exact to the last digits near q = 1."""
    return -expm1(num_clients * log(q)) if q > 0 else 1.0


def _require_probability(q: float) -> None:
    if not 0 <= q < 1:
        raise ValueError(f"q = {q}: must be at least 0 and less than 1, or nothing is ever recovered")


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What Theorem 1 knows of the learning. F has unit E, θ has X."""

    smoothness: float
    """L: gradients of all F_m are L-Lipschitz (assumption 1; E/X²)"""
    gap: float
    """E[F(θ_0)] - F* (E)"""
    gradient_variance: float
    """σ² of assumption 2, of the gradient of one sample (E²/X²); not the σ² of the fading"""
    batch_size: int
    """b: samples per local step"""
    dissimilarities: ArrayLike
    """D_m of assumption 3 (E/X): one for all nodes, or (M,)"""
    quantisation_errors: ArrayLike
    """J_{m,r} of Lemma 2 (E/X): one for all, or (M,), or (T, M)"""
    local_steps: int
    """I: SGD steps in a round"""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The four terms of Theorem 1's right-hand side (E²/X²), a bound on the mean of ‖∇F(θ_r)‖² over T rounds."""

    start: float
    quantisation: float
    gradient_noise: float
    dissimilarity: float

    @property
    def total(self) -> float:
        """The right-hand side."""
        return self.start + self.quantisation + self.gradient_noise + self.dissimilarity


def convergence_bound(learning: Learning, rounds: int, participants: float) -> Bound:
    """The right-hand side of Theorem 1 (eq. theorem 1) after T rounds, as it is printed, for K* participants.

    It holds for the step size `step_size` and at most `most_local_steps`, however small b: the noise counts as σ²/b.
    Appendix B has the same for K̄ in place of K*; its Lemma 4 is printed without the η² of the gradients' terms.
    """
    steps = rounds * learning.local_steps
    root, fourth = sqrt(steps * participants), (steps * participants) ** 0.75
    noise = learning.gradient_variance / learning.batch_size
    errors = rounds * float(np.mean(np.square(learning.quantisation_errors)))
    dissimilarity = float(np.mean(np.square(learning.dissimilarities)))
    drift = 31 / (22 * steps**0.25 * participants**1.25)
    return Bound(
        start=496 * learning.smoothness / (11 * root) * learning.gap,
        quantisation=31 / (88 * steps**1.5 * sqrt(participants)) * errors,
        gradient_noise=(39 / (88 * root) + 1 / (88 * fourth)) * noise,
        dissimilarity=(4 / (11 * root) + 1 / (22 * fourth) + drift) * dissimilarity,
    )


def step_size(learning: Learning, rounds: int, participants: float) -> float:
    """η = (K*/(TI))^{1/2} / (8L), for which Theorem 1's right-hand side is the printed one (X²/E).

    The letter prints η = K*/(8LTI)^{1/2}, whose unit is not that of a step, and for which the theorem does not hold: let
    all F_m be Lθ²/2 with L = 1000, θ_0 = 1, no noise, M = 2, q = 0, T = 4 and I = 1, so that K* = 3/2 and the condition
    holds. Then ηL = 8.4, each round multiplies θ by -7.4, and the mean of ‖∇F(θ_r)‖² is 2.3·10¹² against a right-hand
    side of 9.2·10⁶. So it is with the root over the whole fraction, (K*/(8LTI))^{1/2}. The step here follows from the
    printed terms: they are c·gap/(ηTI), cLη/(2MK*TI)·ΣJ², and 2cLηI/(MK*)·ΣD² for the largest I, all with c = 62/11.
    """
    return sqrt(participants / (rounds * learning.local_steps)) / (8 * learning.smoothness)


def most_local_steps(rounds: int, participants: float) -> float:
    """The largest I for which Theorem 1 is stated: I <= (TI)^{1/4}/K*^{3/4}, which is I <= T^{1/3}/K*. May be below 1."""
    return float(np.cbrt(rounds)) / participants


def least_rounds(local_steps: int, participants: float) -> float:
    """The smallest T for which Theorem 1 is stated with I local steps: (I K*)³."""
    return (local_steps * participants) ** 3
