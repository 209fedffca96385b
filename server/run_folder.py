"""The run folder: everything that a run leaves behind. Its files are described in `dncfl.server.files`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.numpy import save  # a format for tensors that runs no code when read

from dncfl.common.config import Config
from dncfl.common.errors import StorageError
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.server.files import CONFIG, METRICS, MODEL, SUMMARY, TRACE
from dncfl.server.records import RoundRecord


class RunFolder:
    """A new folder for one run; every line is on disk before the next round starts."""

    def __init__(self, config: Config) -> None:
        """Create the folder that the configuration names, or a new one under runs/.

        Raises StorageError when it cannot be made, or holds something already: nothing is ever overwritten.
        """
        self.path = Path(config.out) if config.out is not None else _new_name(config)
        self._is_new = config.out is None or not self.path.exists()
        with _storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise StorageError(f"the run folder {self.path} is not empty; nothing is overwritten, choose another --out")
            (self.path / CONFIG).write_text(config.to_toml())
            for name in (METRICS, TRACE):
                (self.path / name).touch()

    def add_round(self, record: RoundRecord, attempts: Iterable[AttemptTrace]) -> None:
        """Append a round. Raises StorageError."""
        with _storage_errors(self.path):
            with (self.path / TRACE).open("a") as trace:
                trace.writelines(attempt.model_dump_json() + "\n" for attempt in attempts)
            with (self.path / METRICS).open("a") as metrics:
                metrics.write(json.dumps(record.as_dict()) + "\n")

    def discard(self) -> None:
        """Take back what the start of the run wrote, as far as possible; only for a run without a round."""
        with suppress(OSError):
            for name in (CONFIG, METRICS, TRACE):
                (self.path / name).unlink()
            if self._is_new:
                self.path.rmdir()

    def finish(self, tensors: Mapping[str, Vector], summary: Mapping[str, Any]) -> None:
        """Write the model and the summary. Raises StorageError."""
        with _storage_errors(self.path):
            (self.path / MODEL).write_bytes(save(dict(tensors)))
            (self.path / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")


def _new_name(config: Config) -> Path:
    """A name that is not there yet: the time to the second, what is run, and a number where two start at once."""
    stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{config.method}-{config.dataset}"
    names = (Path("runs") / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1000))
    for path in names:
        with _storage_errors(path):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            return path
    raise StorageError(f"runs/ holds a thousand runs of {stem} already; name one by --out")


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"the run folder {path} cannot be written: {error.strerror or error}") from error
