"""Runs of a sweep that stop in their middle and go on: no round is lost, computed twice, or computed otherwise."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dncfl.common.config import load_config
from dncfl.common.running import Interrupted
from dncfl.launch.sweep.jobs import Failed, Finished, Job, compute
from dncfl.launch.sweep.runs import Run
from dncfl.launch.sweep.standing import Standing, path_of
from dncfl.server.records import RoundRecord

ROUNDS = 3


def runs(**settings: object) -> tuple[Run, ...]:
    return tuple(
        Run({"pe": pe}, load_config(None, {"clients": 3, "rounds": ROUNDS, "local_epochs": 1, "pe": pe, **settings}))
        for pe in (0.1, 0.5)
    )


def all_records(job: Job) -> list[tuple[RoundRecord, ...]]:
    records = []
    for result in compute(job):
        assert isinstance(result, Finished), result
        records.append(result.records)
    return records


def apart_from_time(records: Sequence[tuple[RoundRecord, ...]]) -> list[list[RoundRecord]]:
    return [[replace(record, seconds={}) for record in rounds] for rounds in records]


def stop_after(number: int, job: Job) -> None:
    """Compute until so many rounds, of all runs together, are kept."""
    left = number

    def keep(self: Standing, theta: NDArray[np.float32]) -> None:
        nonlocal left
        original(self, theta)
        left -= 1
        if not left:
            raise Interrupted(2)

    original = Standing.keep
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Standing, "keep", keep)
        with pytest.raises(Interrupted):
            compute(job)


@pytest.mark.parametrize(("engine", "num_kept"), [("looped", 2), ("looped", 4), ("batched", 2), ("batched", 4)])
def test_a_job_goes_on_where_it_stopped(engine: str, num_kept: int, tmp_path: Path) -> None:
    job = Job(engine, runs(), tmp_path)
    whole = all_records(Job(engine, job.runs))
    stop_after(num_kept, job)
    kept = [Standing.of(run, engine, tmp_path).records for run in job.runs]
    assert sum(map(len, kept)) == num_kept
    gone_on = all_records(job)
    for before, after in zip(kept, gone_on, strict=True):
        assert list(after[: len(before)]) == before, "the time they took shows that they are the same, not done again"
    assert apart_from_time(gone_on) == apart_from_time(whole)


def test_runs_computed_together_may_have_stopped_at_different_rounds(tmp_path: Path) -> None:
    job = Job("batched", runs(), tmp_path)
    whole = all_records(Job("batched", job.runs))
    stop_after(3, job)
    assert [len(Standing.of(run, "batched", tmp_path).records) for run in job.runs] == [2, 1]
    for mine, theirs in zip(all_records(job), whole, strict=True):
        assert [record.recovered for record in mine] == [record.recovered for record in theirs]
        assert [record.loss for record in mine] == pytest.approx([record.loss for record in theirs], rel=0.01)


def test_an_engine_does_not_go_on_with_what_another_began(tmp_path: Path) -> None:
    stop_after(2, Job("batched", runs(), tmp_path))
    assert apart_from_time(all_records(Job("looped", runs(), tmp_path))) == apart_from_time(all_records(Job("looped", runs())))


def test_what_cannot_be_read_is_computed_again(tmp_path: Path) -> None:
    job = Job("looped", runs()[:1], tmp_path)
    stop_after(1, job)
    path = path_of(job.runs[0], "looped", tmp_path)
    for content in (b"", path.read_bytes()[:-1], bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]):
        path.write_bytes(content)
        assert Standing.of(job.runs[0], "looped", tmp_path).records == []
    assert apart_from_time(all_records(job)) == apart_from_time(all_records(Job("looped", job.runs)))


def test_a_run_whose_model_was_changed_since_starts_anew(tmp_path: Path) -> None:
    (run, _) = runs()
    stop_after(1, Job("looped", (run,), tmp_path))
    standing = Standing.of(run, "looped", tmp_path)
    standing.keep(np.zeros(7, dtype=np.float32))
    assert apart_from_time(all_records(Job("looped", (run,), tmp_path))) == apart_from_time(all_records(Job("looped", (run,))))


def test_where_nothing_can_be_kept_the_job_fails(tmp_path: Path) -> None:
    (result, _) = compute(Job("batched", runs(), tmp_path / "nowhere" / "unfinished"))
    assert isinstance(result, Failed)
    assert "nowhere" in result.reason
    assert "cannot be written: No such file or directory" in result.reason
