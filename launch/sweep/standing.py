"""How far a run of a sweep has come. On the machine of the sweep it is on disk after every round, so that none is lost.

Each run has a file of its own, whatever is computed together: that may be other runs the next time. An engine does not go on
with what another one began.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dncfl.common.storage import replace, writing
from dncfl.launch.sweep.runs import Run
from dncfl.server.records import RoundRecord

THETA, RECORDS = "theta", "records"
UNREADABLE = (OSError, SafetensorError, ValueError, TypeError, KeyError)
"""What a file that is torn, or none of these, raises when it is read."""


@dataclass
class Standing:
    """A run with the rounds that are done."""

    run: Run
    path: Path | None
    """the file that it is kept in, if any"""
    theta: NDArray[np.float32] | None = None
    """None before the first round is done"""
    records: list[RoundRecord] = field(default_factory=list)

    @classmethod
    def of(cls, run: Run, engine: str, folder: Path | None) -> "Standing":
        """Where a run stopped of which a folder may know; its beginning where nothing can be read."""
        standing = cls(run, None if folder is None else path_of(run, engine, folder))
        if standing.path is not None:
            with suppress(*UNREADABLE), safe_open(standing.path, "numpy") as file:
                records = _records(file)
                standing.theta, standing.records = file.get_tensor(THETA), records
        return standing

    def keep(self, theta: NDArray[np.float32]) -> None:
        """Take θ after the rounds that are recorded, and replace what is on disk. Raises StorageError."""
        self.theta = theta
        if self.path is not None:
            content = save({THETA: theta}, {RECORDS: json.dumps([record.as_dict() for record in self.records])})
            with writing(f"the sweep in {self.path.parent.parent}"):
                replace(self.path, lambda aside: aside.write_bytes(content))

    def start_anew(self) -> None:
        """Forget what was done."""
        self.theta = None
        self.records.clear()


def rounds_kept(path: Path) -> int:
    """How many rounds are done of the run that this is the file of; 0 without such a file."""
    with suppress(*UNREADABLE), safe_open(path, "numpy") as file:
        return len(_records(file))
    return 0


def path_of(run: Run, engine: str, folder: Path) -> Path:
    """The file of a run by an engine in a folder of unfinished ones."""
    return folder / f"{run.digest}-{engine}.safetensors"


def _records(file: Any) -> list[RoundRecord]:
    return [RoundRecord.of_dict(record) for record in json.loads(file.metadata()[RECORDS])]
