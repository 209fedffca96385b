"""What a person sees of a sweep while it goes on: a bar with the time left, or off a terminal a line per run."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dncfl.common.running import Interrupted
from dncfl.launch.sweep.jobs import Failed, Result
from dncfl.launch.sweep.runs import Run

ESTIMATED_OVER_SECONDS = 3600
"""The time left follows from the rounds that were done within so long."""


class SweepDisplay:
    """Prints to a console (stderr, so that stdout is left to --json); use it as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("runs {task.fields[runs]}  rounds"),
            BarColumn(None),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=ESTIMATED_OVER_SECONDS,
        )
        self._task = self._progress.add_task("runs", total=None, runs="")
        self._num_pending = self._num_ended = self._rounds_ended = 0

    def __enter__(self) -> "SweepDisplay":
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if kind is Interrupted:
            self.announce(
                f"{self._num_ended} of {self._num_pending} runs are done now; the same command goes on with the others"
            )

    def announce(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def begin(self, num_before: int, pending: Sequence[Run], rounds_kept: Sequence[int], num_others: int) -> None:
        """So many runs are there, these are to be computed but for the rounds kept of each, and so many there are others."""
        self._num_pending = len(pending)
        self._progress.update(self._task, total=sum(run.config.rounds for run in pending))
        self.look(rounds_kept)
        num_begun = sum(map(bool, rounds_kept))
        begun = f", and {num_begun} begun" if num_begun else ""
        self.announce(f"{num_before} of {num_before + len(pending)} runs are there already{begun}")
        if num_others:
            self.announce(f"runs in the folder that are not part of this sweep: {num_others}; they stay, but not in the table")

    def look(self, rounds_kept: Sequence[int]) -> None:
        """So many rounds are done of each run that has not ended."""
        count = f"{self._num_ended}/{self._num_pending}"
        self._progress.update(self._task, completed=self._rounds_ended + sum(rounds_kept), runs=count)

    def ended(self, result: Result) -> None:
        """A run ended."""
        self._num_ended += 1
        self._rounds_ended += result.run.config.rounds
        count = f"{self._num_ended}/{self._num_pending}"
        if isinstance(result, Failed):
            self.announce(f"{count}  FAILED {result.run.name}: {result.reason.partition(chr(10))[0]}")
        elif not self._console.is_terminal:
            self.announce(f"{count}  {result.records[-1].accuracy:7.2%}  {result.seconds:.1f} s  {result.run.name}")
