"""The theory as a picture: the bound of Theorem 1 over T, and K̄ and K* over P_e."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dncfl.common.theory import dominant_outage, least_rounds, mean_participants, participants_bound
from dncfl.launch.theory.asked import Theory

TERMS = {
    "start": "start, F(θ₀) − F*",
    "quantisation": "quantisation, J",
    "gradient_noise": "gradient noise, σ²/b",
    "dissimilarity": "dissimilarity, D",
}


def rounds_drawn(asked: Theory) -> list[int]:
    """Numbers of rounds, evenly on a logarithmic axis, well beyond where the theorem begins to hold and what is asked."""
    last = 100 * max(asked.rounds, least_rounds(asked.learning.local_steps, asked.participants))
    return sorted({round(rounds) for rounds in np.geomspace(1, last, 100)} | {asked.rounds})


def draw(path: Path, asked: Theory) -> None:
    """Draw it to a file. Raises OSError."""
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    figure.suptitle(f"{asked.num_clients} nodes, $P_e$ = {asked.pe:.4g}, q = {asked.q:.3g}")
    bound, participants = figure.subplots(1, 2)
    _draw_bound(bound, asked)
    _draw_participants(participants, asked)
    figure.savefig(path, dpi=110)


def _draw_bound(axes: Axes, asked: Theory) -> None:
    rounds = rounds_drawn(asked)
    bounds = [asked.bound(number) for number in rounds]
    axes.loglog(rounds, [bound.total for bound in bounds], color="black", linewidth=2, label="bound")
    for name, label in TERMS.items():
        values = np.array([getattr(bound, name) for bound in bounds])
        axes.loglog(rounds, np.where(values > 0, values, np.nan), linewidth=1.2, label=label)
    least = least_rounds(asked.learning.local_steps, asked.participants)
    axes.axvspan(1, max(1, least), color="grey", alpha=0.2, linewidth=0, label="does not hold: I too large")
    axes.axvline(asked.rounds, color="grey", linestyle=":", label=f"T = {asked.rounds}")
    title = f"Theorem 1, I = {asked.learning.local_steps}: bound on the mean of ‖∇F‖²"
    axes.set(title=title, xlabel="rounds T", ylabel="bound", xlim=(1, rounds[-1]))
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", frameon=False)


def _draw_participants(axes: Axes, asked: Theory) -> None:
    pe = np.linspace(0, 0.995, 200)
    q = [dominant_outage(value, asked.num_clients) for value in pe]
    axes.plot(pe, [mean_participants(each, asked.num_clients) for each in q], label="K̄ = 1/E[1/|W|], exactly")
    axes.plot(pe, [participants_bound(each, asked.num_clients) for each in q], "--", label="K*, its lower bound")
    axes.axvline(asked.pe, color="grey", linestyle=":", label=f"$P_e$ = {asked.pe:.4g}")
    title = f"Nodes that count, with q = $P_e^{{{2 * asked.num_clients - 1}}}$"
    axes.set(title=title, xlabel="outage probability $P_e$ of a link", ylabel="nodes", xlim=(0, 1), ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")
