"""The folder of a sweep.

runs/NAME-DIGEST/  a finished run: config.toml, which `dncfl run` and `dncfl simulate` repeat; metrics.jsonl, a line per
                   round, see `RoundRecord`; run.json, how it was computed
unfinished/DIGEST-ENGINE.safetensors   θ and the records of a run after its last whole round; gone once the run is finished
failures.jsonl     a line per run that failed in the last invocation, with the reason; there only if there are any
table.parquet      the figures of all runs, see `dncfl.launch.sweep.table`; table.csv is the same for other programs
sweep.lock         held by the one sweep that writes here

A run is put together aside and takes its place in one step, so what is under runs/ is whole. It is found again by its digest.
"""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dncfl.common.errors import StorageError
from dncfl.common.storage import ASIDE, replace, sync, writing
from dncfl.launch.sweep.jobs import Failed, Finished
from dncfl.launch.sweep.runs import Run
from dncfl.launch.sweep.standing import path_of, rounds_kept
from dncfl.server.files import CONFIG, METRICS
from dncfl.server.records import RoundRecord

RUNS, UNFINISHED, FAILURES, LOCK, ABOUT = "runs", "unfinished", "failures.jsonl", "sweep.lock", "run.json"
PARQUET, CSV = "table.parquet", "table.csv"


class SweepFolder:
    """The folder of one sweep, held by one process; see `held`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unfinished = path / UNFINISHED
        self._runs = path / RUNS
        for unfinished in self._runs.glob(f"*{ASIDE}"):
            shutil.rmtree(unfinished)
        for torn in self.unfinished.glob(f"*{ASIDE}"):
            torn.unlink()
        (path / FAILURES).unlink(missing_ok=True)
        self._stored = {folder.name.rpartition("-")[2]: folder for folder in self._runs.iterdir()}

    @classmethod
    @contextmanager
    def held(cls, path: Path) -> Iterator["SweepFolder"]:
        """The folder, made where it is not there, for this process alone.

        Raises StorageError when it cannot be written, is in use, or holds something else than a sweep.
        """
        with ExitStack() as stack:
            with writing(f"the sweep in {path}"):
                path.mkdir(parents=True, exist_ok=True)
                if any(path.iterdir()) and not (path / LOCK).exists():
                    raise StorageError(
                        f"{path} holds something else than a sweep; nothing is overwritten, choose another --out"
                    )
                lock = stack.enter_context((path / LOCK).open("w"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StorageError(f"the sweep in {path} is in use by another dncfl") from None
                for name in (RUNS, UNFINISHED):
                    (path / name).mkdir(exist_ok=True)
                folder = cls(path)
            try:
                yield folder
            finally:
                with suppress(OSError):  # which it raises where something is left
                    folder.unfinished.rmdir()

    def num_others(self, runs: Sequence[Run]) -> int:
        """How many finished runs are here beside these."""
        return len(self._stored.keys() - {run.digest for run in runs})

    def rounds_kept(self, runs: Sequence[Run], engine: str) -> list[int]:
        """How many rounds of each run are kept of those that an engine has done; none of a finished one."""
        kept = set(self.unfinished.glob("*"))
        return [rounds_kept(path) if (path := path_of(run, engine, self.unfinished)) in kept else 0 for run in runs]

    def finished(self, run: Run) -> Finished | None:
        """A run as it was stored, or None. Raises StorageError when it cannot be read."""
        folder = self._stored.get(run.digest)
        if folder is None:
            return None
        try:
            about = json.loads((folder / ABOUT).read_text())
            lines = (folder / METRICS).read_text().splitlines()
            records = tuple(RoundRecord.of_dict(json.loads(line)) for line in lines)
            if len(records) != run.config.rounds:
                raise ValueError(f"{METRICS} holds {len(records)} rounds of {run.config.rounds}")
            return Finished(run=run, records=records, **about)
        except (OSError, ValueError, TypeError, KeyError) as error:
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise StorageError(f"{folder} is no whole run ({reason}); remove it, and it will be computed again") from None

    def add(self, finished: Finished) -> None:
        """Store a run. Raises StorageError."""
        folder = self._runs / f"{finished.run.name}-{finished.run.digest}"
        aside = folder.with_name(folder.name + ASIDE)
        about = {name: getattr(finished, name) for name in ("engine", "seconds", "model_sha256")}
        with writing(f"the sweep in {self.path}"):
            aside.mkdir()
            (aside / CONFIG).write_text(finished.run.config.to_toml())
            (aside / METRICS).write_text("".join(json.dumps(record.as_dict()) + "\n" for record in finished.records))
            (aside / ABOUT).write_text(json.dumps(about) + "\n")
            for path in (*aside.iterdir(), aside):
                sync(path)
            aside.rename(folder)
            sync(self._runs)
            self._forget(finished.run)
        self._stored[finished.run.digest] = folder

    def note(self, failure: Failed) -> None:
        """Add a run to the failures; it begins anew the next time, since what it has done may be wrong. Raises StorageError."""
        line = {"name": failure.run.name, "digest": failure.run.digest, "reason": failure.reason}
        with writing(f"the sweep in {self.path}"), (self.path / FAILURES).open("a") as file:
            file.write(json.dumps(line) + "\n")
            self._forget(failure.run)

    def _forget(self, run: Run) -> None:
        """Remove what any engine kept of an unfinished run."""
        for path in self.unfinished.glob(f"{run.digest}-*"):
            path.unlink()

    def replace(self, name: str, write: Callable[[Path], object]) -> None:
        """A new edition of a file, by a function that writes it to a path; the old one stays until it is whole."""
        with writing(f"the sweep in {self.path}"):
            replace(self.path / name, write)
