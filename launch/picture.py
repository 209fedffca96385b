"""A run as a picture: accuracy and |W| by round, and the measured outage of every link."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dncfl.common.channel import Outcome
from dncfl.common.storage import writing
from dncfl.common.trace import AttemptTrace, read_trace
from dncfl.server.files import PICTURE, TRACE
from dncfl.server.records import RoundRecord


def draw_run(folder: Path, records: Sequence[RoundRecord], title: str) -> Path:
    """Draw run.png in a run folder from its trace and these rounds. Raises StorageError."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    figure.suptitle(title)
    accuracy, recovered, links = figure.subplots(1, 3)
    attempts = read_trace(folder / TRACE)
    num_clients = len(attempts[0].slot1)
    rounds = [record.round for record in records]
    _draw_accuracy(accuracy, rounds, [100 * record.accuracy for record in records])
    _draw_recovered(recovered, records, num_clients)
    counts: Counter[str] = sum((Counter(record.transmissions) for record in records), Counter())
    _draw_outage(links, measured_outage(attempts), counts)
    with writing(f"the picture {folder / PICTURE}"):
        figure.savefig(folder / PICTURE, dpi=110)
    return folder / PICTURE


def measured_outage(attempts: Sequence[AttemptTrace]) -> NDArray[np.float64]:
    """The share of transmissions that the channel erased, per link: M × (M + 1), the PS last; NaN where none came.

    The links between nodes carry slot 1, those to the PS slot 1 and the relay slots. What was lost says nothing of the channel.
    """
    shape = (len(attempts[0].slot1), len(attempts[0].slot1) + 1)
    erased, came = np.zeros(shape), np.zeros(shape)
    for attempt in attempts:
        slot1, relay = np.array([list(row) for row in attempt.slot1]), np.array([list(row) for row in attempt.relay])
        for counts, outcomes in ((erased, [Outcome.ERASED]), (came, [Outcome.ERASED, Outcome.DELIVERED])):
            values = [outcome.value for outcome in outcomes]
            counts += np.isin(slot1, values)
            counts[:, -1] += np.isin(relay, values).sum(axis=1)
    outage: NDArray[np.float64] = np.divide(erased, came, out=np.full(shape, np.nan), where=came > 0)
    return outage


def _draw_accuracy(axes: Axes, rounds: list[int], accuracy: list[float]) -> None:
    axes.plot(rounds, accuracy, marker="o", markersize=4)
    axes.set(title="Test accuracy", xlabel="round", ylabel="accuracy (%)", ylim=(0, 100))
    _number_rounds(axes, rounds)
    axes.grid(alpha=0.3)


def _number_rounds(axes: Axes, rounds: Sequence[int]) -> None:
    axes.set_xlim(rounds[0] - 0.6, rounds[-1] + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_recovered(axes: Axes, records: Sequence[RoundRecord], num_clients: int) -> None:
    rounds = [record.round for record in records]
    direct = [len(set(record.recovered) & set(record.direct)) for record in records]
    relayed = [len(set(record.recovered) - set(record.direct)) for record in records]
    axes.bar(rounds, direct, label="heard directly", color="tab:blue")
    axes.bar(rounds, relayed, bottom=direct, label="recovered through relays", color="tab:orange")
    axes.axhline(num_clients, color="black", linewidth=0.8, linestyle="--")
    axes.set(title="|W|: nodes that count", xlabel="round", ylabel="nodes", ylim=(0, num_clients * 1.25))
    _number_rounds(axes, rounds)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper center", ncols=2, fontsize="small", frameon=False)


def _draw_outage(axes: Axes, outage: NDArray[np.float64], counts: Mapping[str, int]) -> None:
    num_clients, measured = len(outage), outage[np.isfinite(outage)]
    darkest = max(0.4, measured.max(initial=0.0))
    came = counts["erased"] + counts["delivered"]
    mean = f"mean {counts['erased'] / came:.3f}" if came else "nothing came"
    lost = f"; {counts['lost']} lost" if counts["lost"] else ""
    image = axes.imshow(outage, cmap="YlGnBu", vmin=0, vmax=darkest, aspect="auto")
    axes.axvline(num_clients - 0.5, color="white", linewidth=3)
    axes.set(title=f"Measured outage ({mean}{lost})", xlabel="to", ylabel="from node")
    if num_clients <= 16:
        axes.set_xticks(range(num_clients + 1), [*map(str, range(num_clients)), "PS"])
        axes.set_yticks(range(num_clients))
        for (sender, receiver), value in np.ndenumerate(outage):
            if np.isfinite(value):
                colour = "white" if value > 0.6 * darkest else "black"
                text = f"{value:.2f}".removeprefix("0")
                axes.text(receiver, sender, text, ha="center", va="center", fontsize=6, color=colour)
    axes.figure.colorbar(image, ax=axes)
