"""What a person sees of a run while it goes on: a line per round, and below it what is happening now."""

from time import perf_counter

from rich.console import Console  # tables, colours and live lines on any terminal, and plain text off one
from rich.status import Status

from dncfl.common.config import Config
from dncfl.server.process import Observer
from dncfl.server.records import RoundRecord

LEGEND = "nodes: D heard directly, r recovered through relays, - not recovered"


class Display(Observer):
    """Prints to a console (stderr, so that stdout is left to --json); use it as a context."""

    def __init__(self, config: Config, console: Console) -> None:
        self._config = config
        self._console = console
        self._status: Status | None = Status("", console=console) if console.is_terminal else None
        self._started = perf_counter()

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
            self.now(f"waiting for {_nodes(missing)}")

    def communicating(self, round: int, attempt: int, pending: tuple[int, ...]) -> None:
        again = "" if attempt == 1 else f", attempt {attempt}"
        self.now(
            f"round {round}/{self._config.rounds}{again}: {self._config.clients - len(pending)} of "
            f"{self._config.clients} nodes through"
        )

    def round_done(self, record: RoundRecord) -> None:
        if record.round == 1:
            self.announce(LEGEND)
            self.announce(
                f"{'round':>7} {'accuracy':>9} {'|W|':>5} {'attempts':>9} {'nodes':<{self._config.clients}} "
                f"{'MB':>8} {'s':>7} {'elapsed':>8}"
            )
        size = sum(sum(kinds.values()) for kinds in record.bytes.values()) / 1e6
        self.announce(
            f"{record.round:>4}/{self._config.rounds:<2} {record.accuracy:>9.2%} {len(record.recovered):>5} "
            f"{record.attempts:>9} {_who(record, self._config.clients):<{max(5, self._config.clients)}} "
            f"{size:>8.2f} {record.seconds['total']:>7.2f} {perf_counter() - self._started:>7.1f}s"
        )
        self.now(f"round {record.round + 1}/{self._config.rounds}: training")


def _who(record: RoundRecord, num_clients: int) -> str:
    return "".join(
        "D" if m in record.direct and m in record.recovered else "r" if m in record.recovered else "-"
        for m in range(num_clients)
    )


def _nodes(numbers: tuple[int, ...]) -> str:
    return ("node " if len(numbers) == 1 else "nodes ") + ", ".join(map(str, numbers))
