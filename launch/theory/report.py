"""The answers of the theory as text, as JSON and as a table."""

import csv
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dncfl.common.theory import least_rounds, mean_participants, most_local_steps, step_size
from dncfl.launch.theory.asked import Theory


def as_text(asked: Theory) -> Iterator[str]:
    """Lines for a person."""
    learning, rounds = asked.learning, asked.rounds
    participants, bound = asked.participants, asked.bound(rounds)
    source = "as given" if asked.q_is_given else f"P_e^{2 * asked.num_clients - 1}"
    yield f"{asked.num_clients} nodes, P_e = {asked.pe:.5g}"
    yield f"  {asked.q:<10.4g} outage q of a message, {source}"
    yield f"  {mean_participants(asked.q, asked.num_clients):<10.4g} K̄ = 1/E[1/|W|], exactly (Lemma 1)"
    yield f"  {participants:<10.4g} K*, at most K̄ (Lemma 1)"
    steps = f"I = {learning.local_steps} local step{'s' * (learning.local_steps != 1)}"
    yield f"Theorem 1, T = {rounds} rounds of {steps}, batches of {learning.batch_size}"
    yield f"  {step_size(learning, rounds, participants):<10.4g} step size η = (K*/TI)^(1/2) / 8L; the letter misprints it"
    yield from _condition(asked)
    yield "right-hand side, a bound on the mean of ‖∇F‖² over the rounds"
    constants = f"L = {learning.smoothness:g}, F(θ_0) - F* = {learning.gap:g}, σ² = {learning.gradient_variance:g}"
    yield f"  for {constants}, D = {_listed(learning.dissimilarities)}, J = {_listed(learning.quantisation_errors)}"
    yield f"  {bound.start:<10.4g} from the start, F(θ_0) - F*"
    yield f"  {bound.quantisation:<10.4g} from the quantisation, J"
    yield f"  {bound.gradient_noise:<10.4g} from the gradient's noise, σ²/b"
    yield f"  {bound.dissimilarity:<10.4g} from the dissimilarity of the data, D"
    yield f"  {bound.total:<10.4g} in all"


def _listed(values: ArrayLike) -> str:
    return ", ".join(f"{value:g}" for value in np.ravel(values))


def _condition(asked: Theory) -> Iterator[str]:
    most = most_local_steps(asked.rounds, asked.participants)
    if asked.condition_holds(asked.rounds):
        yield f"  {most:<10.4g} most local steps, T^(1/3)/K*: the theorem holds"
        return
    needed = ceil(least_rounds(asked.learning.local_steps, asked.participants))
    yield f"  {most:<10.4g} most local steps, T^(1/3)/K*: the theorem does NOT hold for I = {asked.learning.local_steps}"
    yield f"  {needed:<10,} rounds are the fewest for which it would, (I K*)^3"


def as_json(asked: Theory) -> dict[str, object]:
    """Plain values for a program."""
    bound = asked.bound(asked.rounds)
    return {
        "clients": asked.num_clients,
        "pe": asked.pe,
        "q": asked.q,
        "mean_participants": mean_participants(asked.q, asked.num_clients),
        "participants_bound": asked.participants,
        "rounds": asked.rounds,
        "local_steps": asked.learning.local_steps,
        "step_size": step_size(asked.learning, asked.rounds, asked.participants),
        "most_local_steps": most_local_steps(asked.rounds, asked.participants),
        "least_rounds": least_rounds(asked.learning.local_steps, asked.participants),
        "condition_holds": asked.condition_holds(asked.rounds),
        "terms": vars(bound),
        "bound": bound.total,
    }


def write_csv(path: Path, asked: Theory, rounds_drawn: Sequence[int]) -> None:
    """A row for each of some numbers of rounds: the terms of the bound after these."""
    with path.open("x", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rounds", "condition_holds", *vars(asked.bound(1)), "bound"])
        for rounds in rounds_drawn:
            bound = asked.bound(rounds)
            writer.writerow([rounds, asked.condition_holds(rounds), *vars(bound).values(), bound.total])
