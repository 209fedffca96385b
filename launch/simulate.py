"""Commands without sockets: the reference of a run, and the replay of a recorded one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from dncfl.common.config import Config
from dncfl.common.errors import ConfigError, ReplayMismatch, StorageError
from dncfl.common.trace import AttemptTrace, read_trace
from dncfl.launch.display import Display
from dncfl.launch.reference import Communication, as_recorded, over_channel, reference_rounds
from dncfl.launch.session import Session
from dncfl.server.files import SUMMARY, TRACE
from dncfl.server.global_model import GlobalModel
from dncfl.server.records import RoundRecord

BATCHED = "simulate --engine batched"
"""What the summary of a run by the batched engine says of it."""

Communicate = Callable[[int], Communication]
Rounds = Iterator[tuple[RoundRecord, list[AttemptTrace]]]


def simulate_run(config: Config) -> dict[str, Any]:
    """Compute a run in this process; returns its summary."""
    return _compute("simulate", config, over_channel(config), reference_rounds)


def simulate_batched(config: Config) -> dict[str, Any]:
    """Compute a run by the batched engine; returns its summary. Raises ConfigError for a model that it does not know."""
    from dncfl.launch.batched.engine import BatchedRun, batched_rounds

    def rounds(config: Config, model: GlobalModel, communicate: Communicate) -> Rounds:
        for _, record, attempts in batched_rounds([BatchedRun(config=config, model=model, communicate=communicate)]):
            yield record, attempts

    return _compute(BATCHED, config, over_channel(config), rounds)


def replay_run(config: Config, run_folder: Path) -> dict[str, Any]:
    """Recompute a recorded run from its links; returns the summary, with `matches` and the recorded hash.

    Raises ReplayMismatch when the models differ, DataError without a usable trace, StorageError without a summary,
    ConfigError for a run of the batched engine.
    """
    attempts = read_trace(run_folder / TRACE)
    try:
        recorded = json.loads((run_folder / SUMMARY).read_text())
        rounds_done, recorded_hash = int(recorded["rounds_done"]), str(recorded["model_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise StorageError(f"{run_folder / SUMMARY} is no summary of a run that ended ({reason})") from None
    if recorded.get("command") == BATCHED:
        raise ConfigError(
            f"{run_folder} is by the batched engine, which trains as nodes do but not bit for bit: it has no replay"
        )
    done = config.model_copy(update={"rounds": rounds_done})
    summary = _compute("replay", done, lambda number: as_recorded(done, attempts, number), reference_rounds)
    if summary["model_sha256"] != recorded_hash:
        raise ReplayMismatch(
            f"the replayed model {summary['model_sha256']} differs from the recorded {recorded_hash}; it is the same only with "
            f"the same versions (see {SUMMARY}), kind of processor, data and code, also of your own"
        )
    return summary | {"matches": True}


def _compute(
    command: str, config: Config, communicate: Communicate, compute_rounds: Callable[[Config, GlobalModel, Communicate], Rounds]
) -> dict[str, Any]:
    with Display(config, Console(stderr=True)) as display:
        session = Session(command, config, display)

        def work() -> None:
            for record, attempts in compute_rounds(config, session.model, communicate):
                session.add_round(record, attempts)
                display.round_done(record)

        return session.carry_out(work)
