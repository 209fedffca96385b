"""Commands without sockets: the reference of a run, and the replay of a recorded one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from dncfl.common.config import Config
from dncfl.common.errors import ReplayMismatch, StorageError
from dncfl.common.scheme import channel
from dncfl.common.trace import read_trace
from dncfl.launch.display import Display
from dncfl.launch.reference import Communication, as_recorded, reference_rounds, simulated
from dncfl.launch.session import Session
from dncfl.server.files import SUMMARY, TRACE


def simulate_run(config: Config) -> dict[str, Any]:
    """Compute a run in this process; returns its summary."""
    links = channel(config)
    return _compute("simulate", config, lambda number: simulated(config, links, number))


def replay_run(config: Config, run_folder: Path) -> dict[str, Any]:
    """Recompute a recorded run from its links; returns the summary, with `matches` and the recorded hash.

    Raises ReplayMismatch when the models differ, DataError without a usable trace, StorageError without a summary.
    """
    attempts = read_trace(run_folder / TRACE)
    try:
        recorded = json.loads((run_folder / SUMMARY).read_text())
        rounds_done, recorded_hash = int(recorded["rounds_done"]), str(recorded["model_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(f"{run_folder / SUMMARY} is no summary of a run that ended ({reason})") from None
    done = config.model_copy(update={"rounds": rounds_done})
    summary = _compute("replay", done, lambda number: as_recorded(done, attempts, number))
    if summary["model_sha256"] != recorded_hash:
        raise ReplayMismatch(f"the replayed model {summary['model_sha256']} differs from the recorded {recorded_hash}")
    return summary | {"matches": True}


def _compute(command: str, config: Config, communicate: Callable[[int], Communication]) -> dict[str, Any]:
    with Display(config, Console(stderr=True)) as display:
        session = Session(command, config, display)

        def work() -> None:
            for record, attempts in reference_rounds(config, session.model, communicate):
                session.add_round(record, attempts)
                display.round_done(record)

        return session.carry_out(work)
