"""How far a run of a sweep has come. On the machine of the sweep it is on disk after every round, so that none is lost.

Each run has a file of its own, whatever is computed together: that may be other runs the next time.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from dncfl.common.storage import writing
from dncfl.launch.sweep.runs import Run
from dncfl.server.records import RoundRecord

THETA, ROUNDS, RECORDS = "theta", "rounds", "records"
ASIDE = ".new"
"""What a name ends with while it is not whole."""


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
    def of(cls, run: Run, folder: Path | None) -> "Standing":
        """Where a run stopped of which a folder may know; its beginning where nothing can be read."""
        standing = cls(run, None if folder is None else path_of(run, folder))
        if standing.path is not None:
            with suppress(OSError, SafetensorError, ValueError, TypeError, KeyError), safe_open(standing.path, "numpy") as file:
                records = [RoundRecord.of_dict(record) for record in json.loads(file.metadata()[RECORDS])]
                standing.theta, standing.records = file.get_tensor(THETA), records
        return standing

    def keep(self, theta: NDArray[np.float32]) -> None:
        """Take θ after the rounds that are recorded, and replace what is on disk. Raises StorageError."""
        self.theta = theta
        if self.path is not None:
            aside = self.path.with_suffix(ASIDE)
            with writing(f"the sweep in {self.path.parent.parent}"):
                records = json.dumps([record.as_dict() for record in self.records])
                aside.write_bytes(save({THETA: theta}, {ROUNDS: str(len(self.records)), RECORDS: records}))
                aside.replace(self.path)

    def start_anew(self) -> None:
        """Forget what was done."""
        self.theta = None
        self.records.clear()


def rounds_kept(path: Path) -> int:
    """How many rounds are done of the run that this is the file of; 0 without such a file."""
    with suppress(OSError, SafetensorError, ValueError, TypeError, KeyError), safe_open(path, "numpy") as file:
        return int(file.metadata()[ROUNDS])
    return 0


def path_of(run: Run, folder: Path) -> Path:
    """The file of a run in a folder of unfinished ones."""
    return folder / f"{run.digest}.safetensors"
