"""What a person sees of a run while it goes on: a line per round, and below it what is happening now."""

from time import perf_counter

from rich.console import Console  # tables, colours and live lines on any terminal, and plain text off one
from rich.status import Status

from dncfl.common.config import Config
from dncfl.common.words import nodes_in_words
from dncfl.server.observer import Observer, Progress
from dncfl.server.records import RoundRecord

MANY_CLIPPED = 0.05
"""The share of clipped values from which on a run is told once: the quantiser then changes what is learnt."""

LEGEND = "nodes: D heard directly, r recovered through relays, - not recovered"


class Display(Observer):
    """Prints to a console (stderr, so that stdout is left to --json); use it as a context."""

    def __init__(self, config: Config, console: Console, *, tells_who_joins: bool = False) -> None:
        self._config = config
        self._console = console
        self._status: Status | None = Status("getting ready", console=console) if console.is_terminal else None
        self._tells_who_joins = tells_who_joins
        self._started = perf_counter()
        self._headed = False
        self._told_of_clipping = False

    def __enter__(self) -> "Display":
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def now(self, text: str) -> None:
        """Say what is happening at the moment, on a terminal only."""
        if self._status is not None:
            self._status.update(text)

    def announce(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def waiting(self, missing: tuple[int, ...]) -> None:
        if missing:
            self.now(f"waiting for {nodes_in_words(missing)}")

    def joined(self, node: int) -> None:
        if self._tells_who_joins:
            self.announce(f"node {node} has joined")

    def communicating(self, progress: Progress) -> None:
        again = "" if progress.attempt == 1 else f", attempt {progress.attempt}"
        waiting = f", waiting for {nodes_in_words(progress.awaited)}" if progress.awaited else ""
        slots = f"{progress.slots_over} of {progress.num_slots} transmissions{waiting}"
        self.now(f"round {progress.round}/{self._config.rounds}{again}: {slots}")

    def notice(self, text: str) -> None:
        self.announce(text)

    def warning(self, text: str) -> None:
        self.announce(f"warning: {text}")

    def round_done(self, record: RoundRecord) -> None:
        rounds, num_clients = self._config.rounds, self._config.clients
        if not self._headed:
            self._headed = True
            self.announce(LEGEND)
            self.announce(self._row("round", "accuracy", "|W|", "attempts", "nodes", "MB", "seconds", "elapsed"))
        size = sum(sum(kinds.values()) for kinds in record.bytes.values()) / 1e6
        self.announce(
            self._row(
                f"{record.round}/{rounds}",
                f"{record.accuracy:.2%}",
                f"{len(record.recovered)}",
                f"{record.attempts}",
                _who(record, num_clients),
                f"{size:.2f}" if record.bytes else "-",
                f"{record.seconds['total']:.2f}",
                f"{perf_counter() - self._started:.1f}",
            )
        )
        if record.clip_fraction > MANY_CLIPPED and not self._told_of_clipping:
            self._told_of_clipping = True
            share, bound = f"{record.clip_fraction:.0%} of the updates' values", self._config.bound
            better = "--bound per-tensor clips none; see also clip_fraction and --lr"
            self.warning(f"{share} were clipped at ±{bound} in round {record.round}; {better}")
        if record.round < rounds:
            self.now(f"round {record.round + 1}/{rounds}: training")
        else:
            self.now("all rounds are done; writing the model and the picture")

    def _row(self, *cells: str) -> str:
        widths = (8, 8, 3, 8, max(5, self._config.clients), 8, 7, 7)
        return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _who(record: RoundRecord, num_clients: int) -> str:
    return "".join(
        "D" if m in record.direct and m in record.recovered else "r" if m in record.recovered else "-"
        for m in range(num_clients)
    )
