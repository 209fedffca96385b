"""The run folder: everything that a run leaves behind. Its files are described in `dncfl.server.files`."""

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open  # a format for tensors that runs no code when read
from safetensors.numpy import save

from dncfl.common.config import Config
from dncfl.common.errors import StorageError
from dncfl.common.storage import append, replace, writing
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.server.files import CHECKPOINT, CONFIG, FAULTS, METRICS, MODEL, SUMMARY, TRACE
from dncfl.server.records import RoundRecord


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands: θ after its first rounds, and what is recorded of these."""

    theta: Vector | None
    """None before the first round is done"""
    records: list[RoundRecord]

    @property
    def rounds_done(self) -> int:
        """How many rounds are done."""
        return len(self.records)


class RunFolder:
    """The folder of one run, held by one process; every round is on disk before the next one starts."""

    def __init__(self, path: Path, is_new: bool) -> None:
        """Hold a folder that is there. Raises StorageError when another process does."""
        self.path = path
        self._is_new = is_new
        with writing(f"the run folder {path}"):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._descriptor)
                raise StorageError(f"the run folder {path} is in use by another dncfl") from None

    @classmethod
    def create(cls, config: Config) -> "RunFolder":
        """The folder that the configuration names, or a new one under runs/.

        Raises StorageError when it cannot be made, or holds something already: nothing is ever overwritten.
        """
        path = Path(config.out) if config.out is not None else _new_name(config)
        with writing(f"the run folder {path}"):
            is_new = config.out is None or not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path, is_new)
            if any(path.iterdir()):
                folder.close()
                raise StorageError(f"the run folder {path} is not empty; nothing is overwritten, choose another --out")
            (path / CONFIG).write_text(config.to_toml())
            for name in (METRICS, TRACE):
                (path / name).touch()
        return folder

    @classmethod
    def reopen(cls, path: Path) -> tuple["RunFolder", Checkpoint]:
        """The folder of a run that may go on, and where it stands; nothing is changed before `go_on`.

        Raises StorageError when it cannot be read, is in use, or is none of a run that keeps checkpoints.
        """
        folder = cls(path, is_new=False)
        try:
            with writing(f"the run folder {path}"):
                return folder, folder._read_checkpoint()
        except BaseException:
            folder.close()
            raise

    def go_on(self, config: Config, rounds_done: int) -> None:
        """Let the run go on with `config`; what was recorded beyond its checkpoint is taken back. Raises StorageError."""
        with writing(f"the run folder {self.path}"):
            kept = {name: _first_rounds(self.path / name, rounds_done) for name in (METRICS, TRACE)}
            for name, content in kept.items():
                self._replace(name, content)
            self._replace(CONFIG, config.to_toml().encode())

    @property
    def is_complete(self) -> bool:
        """Whether the run has been finished, with all its rounds."""
        try:
            return bool(json.loads((self.path / SUMMARY).read_text())["completed"])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    @property
    def can_go_on(self) -> bool:
        """Whether there is a place to go on from."""
        return (self.path / CHECKPOINT).exists()

    def close(self) -> None:
        """Let others have the folder."""
        os.close(self._descriptor)

    def add_round(self, record: RoundRecord, attempts: Iterable[AttemptTrace]) -> None:
        """Append a round. Raises StorageError."""
        with writing(f"the run folder {self.path}"):
            append(self.path / TRACE, "".join(attempt.model_dump_json() + "\n" for attempt in attempts).encode())
            append(self.path / METRICS, (json.dumps(record.as_dict()) + "\n").encode())

    def checkpoint(self, theta: Vector, round: int) -> None:
        """Make this the place where the run goes on; the one before stays until this is on disk. Raises StorageError."""
        with writing(f"the run folder {self.path}"):
            self._replace(CHECKPOINT, save({"theta": theta}, {"round": str(round)}))

    def _read_checkpoint(self) -> Checkpoint:
        if not (self.path / CHECKPOINT).exists():
            if (self.path / METRICS).read_bytes().count(b"\n") > 1:  # a first round may have been recorded just before a crash
                raise StorageError(f"{self.path} holds rounds but no checkpoint: only what run and server wrote can go on")
            return Checkpoint(None, [])
        try:
            with safe_open(self.path / CHECKPOINT, framework="numpy") as file:
                rounds_done = int(file.metadata()["round"])
                theta: Vector = file.get_tensor("theta")
            lines = (self.path / METRICS).read_bytes().splitlines()
            records = [RoundRecord.of_dict(json.loads(line)) for line in lines[:rounds_done]]
            if len(records) < rounds_done:
                raise ValueError(f"{METRICS} holds {len(records)} rounds of the {rounds_done} that are done")
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise StorageError(f"{self.path} is no run that could go on: {error}") from None
        return Checkpoint(theta, records)

    def _replace(self, name: str, content: bytes) -> None:
        """See `storage.replace`."""
        replace(self.path / name, lambda aside: aside.write_bytes(content))

    def discard(self) -> None:
        """Take back what the start of the run wrote, as far as possible; only for a run without a round."""
        with suppress(OSError):
            for name in (CONFIG, METRICS, TRACE, FAULTS):
                (self.path / name).unlink(missing_ok=True)
            if self._is_new:
                self.path.rmdir()

    def finish(self, tensors: Mapping[str, Vector], summary: Mapping[str, Any]) -> None:
        """Write the model and the summary. Raises StorageError."""
        with writing(f"the run folder {self.path}"):
            self._replace(MODEL, save(dict(tensors)))
            self._replace(SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())


def _first_rounds(path: Path, rounds_done: int) -> bytes:
    """The lines of a file without those of later rounds, and without a last one that was cut off."""
    kept = []
    for line in path.read_bytes().splitlines():
        try:
            if json.loads(line)["round"] <= rounds_done:
                kept.append(line + b"\n")
        except (ValueError, TypeError, KeyError):
            break
    return b"".join(kept)


def _new_name(config: Config) -> Path:
    """A name that is not there yet: the time to the second, what is run, and a number where two start at once."""
    dataset = config.dataset.replace(":", "_")  # not every file system takes a colon
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{config.method}-{dataset}"
    names = (Path("runs") / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1000))
    for path in names:
        with writing(f"the run folder {path}"):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            return path
    raise StorageError(f"runs/ holds a thousand runs of {stem} already; name one by --out")
