"""A sweep from runs to table, with workers that only pretend: what is computed when, what is kept, and what is told."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from dncfl.common.config import load_config
from dncfl.common.errors import StorageError
from dncfl.common.running import Interrupted
from dncfl.launch.sweep.carry_out import Outcome, carry_out
from dncfl.launch.sweep.display import SweepDisplay
from dncfl.launch.sweep.engines import ENGINES, Engine
from dncfl.launch.sweep.jobs import Failed, Finished, Job, Result
from dncfl.launch.sweep.runs import Label, Run
from dncfl.launch.sweep.standing import Standing, path_of
from dncfl.server.records import RoundRecord

ROUNDS = 2


RECALL = (0.5, 0.25, *[1.0] * 8)


def record(
    round: int, *, accuracy: float = 0.5, recall: tuple[float, ...] = RECALL, attempts: int = 1, relay_slots: int = 0
) -> RoundRecord:
    return RoundRecord(
        round=round,
        accuracy=accuracy,
        loss=float("nan"),
        recall=recall,
        train_loss=1.5,
        recovered=(0, 1, 2),
        direct=(1,),
        attempts=attempts,
        relay_slots=relay_slots,
        relay_slots_saved=0,
        bytes_sent=1000,
        bytes_saved=0,
        rank=3,
        transmissions={"sent": 9, "delivered": 6, "erased": 2, "lost": 1},
        suspects=(),
        num_dropped=0,
        lost_links={},
        clip_fraction=0.0,
        bytes={},
        seconds={"total": 0.25},
    )


def run(seed: int, labels: Mapping[str, Label] | None = None, **settings: object) -> Run:
    return Run(labels or {}, load_config(None, {"clients": 3, "rounds": ROUNDS, "seed": seed, **settings}))


def runs(*seeds: int) -> list[Run]:
    return [run(seed) for seed in seeds]


class Pretended:
    """An executor that notes what it is asked for, and fails where it is told to."""

    is_here = True

    def __init__(self, fails: Callable[[Job], bool] = lambda job: False, stops_after: int | None = None) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.closed = 0
        self._fails = fails
        self._stops_after = stops_after

    def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
        try:
            for number, job in enumerate(jobs):
                if number == self._stops_after:
                    raise Interrupted(2)
                self.asked.append(tuple(run.config.seed for run in job.runs))
                yield [self._result(job, run) for run in job.runs]
        finally:
            self.closed += 1

    def _result(self, job: Job, run: Run) -> Result:
        if self._fails(job):
            return Failed(run, "it fell over\nand here is where")
        records = (record(1, attempts=2, relay_slots=1), record(2, accuracy=run.config.seed / 10))
        return Finished(run=run, engine=job.engine, records=records, seconds=1.0)


def carried_out(runs: Sequence[Run], path: Path, executor: Pretended, engine: str = "looped") -> Outcome:
    with SweepDisplay(Console(stderr=True)) as display:
        return carry_out(runs, path, engine, executor, display)


def seeds_in(path: Path) -> list[int]:
    return pl.read_parquet(path / "table.parquet")["seed"].unique().sort().to_list()


def test_only_what_is_missing_is_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, first, second = tmp_path / "sweep", Pretended(), Pretended()
    carried_out(runs(0, 1), path, first)
    outcome = carried_out(runs(1, 2), path, second)
    assert (first.asked, second.asked) == ([(0,), (1,)], [(2,)])
    assert (outcome.num_before, outcome.num_computed, outcome.failures) == (1, 1, [])
    assert seeds_in(path) == [1, 2]
    assert len(list((path / "runs").iterdir())) == 3
    assert "runs in the folder that are not part of this sweep: 1; they stay" in capsys.readouterr().err


def test_a_run_is_known_by_what_it_computes_not_by_its_name(tmp_path: Path) -> None:
    carried_out([run(0, {"snr": 3})], tmp_path, Pretended())
    executor = Pretended()
    outcome = carried_out([run(0, {"snr": 3, "lr": 0.01}), run(0, {"figure": "b"})], tmp_path, executor)
    assert executor.asked == []
    assert outcome.table is not None
    assert outcome.table.select("snr", "lr", "figure", "round").rows() == [
        (3, 0.01, None, 1), (3, 0.01, None, 2), (None, None, "b", 1), (None, None, "b", 2)
    ]  # fmt: skip


def test_the_same_run_under_two_labels_is_computed_once(tmp_path: Path) -> None:
    executor = Pretended()
    outcome = carried_out([run(0, {"figure": "a"}), run(0, {"figure": "b"})], tmp_path, executor)
    assert executor.asked == [(0,)]
    assert outcome.table is not None
    assert outcome.table["figure"].to_list() == ["a", "a", "b", "b"]


def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on(tmp_path: Path) -> None:
    stopped, resumed = Pretended(stops_after=2), Pretended()
    with pytest.raises(Interrupted):
        carried_out(runs(0, 1, 2, 3), tmp_path, stopped)
    assert stopped.closed == 1
    assert seeds_in(tmp_path) == [0, 1]
    carried_out(runs(0, 1, 2, 3), tmp_path, resumed)
    assert resumed.asked == [(2,), (3,)]
    assert seeds_in(tmp_path) == [0, 1, 2, 3]


def test_what_was_begun_is_told_of_and_goes_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Begins(Pretended):
        def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
            assert {job.unfinished for job in jobs} == {tmp_path / "unfinished"}
            for job in jobs:
                for each in job.runs:
                    kept = Standing(each, path_of(each, "looped", tmp_path / "unfinished"), records=[record(1)])
                    kept.keep(np.zeros(100, dtype=np.float32))
            (tmp_path / "unfinished" / "torn.new").touch()
            return super().results(jobs)

    with pytest.raises(Interrupted):
        carried_out(runs(0, 1, 2), tmp_path, Begins(lambda job: job.runs[0].config.seed == 1, stops_after=2))
    assert [path.stem for path in (tmp_path / "unfinished").glob("*.safetensors")] == [f"{runs(2)[0].digest}-looped"]
    carried_out(runs(0, 1, 2), tmp_path, Pretended())
    assert "1 of 3 runs are there already, and 1 begun\n" in capsys.readouterr().err
    assert not (tmp_path / "unfinished").exists()


def test_the_bar_counts_the_rounds_of_runs_that_have_not_ended(tmp_path: Path) -> None:
    class InTheMiddle(Pretended):
        def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
            for job in jobs:
                kept = Standing(job.runs[0], path_of(job.runs[0], "looped", tmp_path / "unfinished"), records=[record(1)])
                kept.keep(np.zeros(100, dtype=np.float32))
                yield []
                yield from super().results([job])

    class Watched(SweepDisplay):
        def look(self, rounds_kept: Sequence[int]) -> None:
            super().look(rounds_kept)
            (bar,) = self._progress.tasks
            seen.append((bar.completed, bar.total, bar.fields["runs"]))

    seen: list[tuple[float, float | None, str]] = []
    with Watched(Console(stderr=True)) as display:
        carry_out(runs(0, 1), tmp_path, "looped", InTheMiddle(), display)
    assert seen == [(0, 4, "0/2"), (1, 4, "0/2"), (2, 4, "1/2"), (3, 4, "1/2"), (4, 4, "2/2")]


def test_what_was_put_together_aside_does_not_count(tmp_path: Path) -> None:
    carried_out(runs(0), tmp_path, Pretended())
    (stored,) = (tmp_path / "runs").iterdir()
    stored.rename(stored.with_name(stored.name + ".new"))
    executor = Pretended()
    carried_out(runs(0), tmp_path, executor)
    assert executor.asked == [(0,)]
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == [stored.name]


def test_a_failure_harms_no_other_and_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = Pretended(lambda job: job.runs[0].config.seed == 1)
    outcome = carried_out(runs(0, 1, 2), tmp_path, failing)
    assert [failure.run.config.seed for failure in outcome.failures] == [1]
    assert seeds_in(tmp_path) == [0, 2]
    (line,) = (tmp_path / "failures.jsonl").read_text().splitlines()
    assert json.loads(line)["name"] == "seed=1"
    assert json.loads(line)["reason"] == "it fell over\nand here is where"
    assert "FAILED seed=1: it fell over\n" in capsys.readouterr().err
    executor = Pretended()
    assert carried_out(runs(0, 1, 2), tmp_path, executor).failures == []
    assert executor.asked == [(1,)]
    assert not (tmp_path / "failures.jsonl").exists()


def test_no_run_at_all_makes_no_table(tmp_path: Path) -> None:
    assert carried_out(runs(0), tmp_path, Pretended(lambda job: True)).table is None
    assert not (tmp_path / "table.csv").exists()


def test_a_job_of_several_runs_that_fails_is_tried_in_single_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pairs(runs: Sequence[Run]) -> list[list[Run]]:
        return [list(runs[i : i + 2]) for i in range(0, len(runs), 2)]

    monkeypatch.setitem(ENGINES, "pairs", Engine(rounds=lambda standings: None, grouped=pairs))
    executor = Pretended(lambda job: any(run.config.seed == 3 for run in job.runs))
    outcome = carried_out(runs(0, 1, 2, 3), tmp_path, executor, "pairs")
    assert executor.asked == [(0, 1), (2, 3), (2,), (3,)]
    assert [failure.run.config.seed for failure in outcome.failures] == [3]
    assert seeds_in(tmp_path) == [0, 1, 2]


def test_a_damaged_run_is_named_and_nothing_is_computed(tmp_path: Path) -> None:
    carried_out(runs(0), tmp_path, Pretended())
    (metrics,) = tmp_path.glob("runs/*/metrics.jsonl")
    metrics.write_text(metrics.read_text()[:50])
    executor = Pretended()
    with pytest.raises(StorageError, match=r"is no whole run .*; remove it, and it will be computed again"):
        carried_out(runs(0, 1), tmp_path, executor)
    assert executor.asked == []


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    class Nested(Pretended):
        def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
            with pytest.raises(StorageError, match="is in use by another dncfl"):
                carried_out(runs(5), tmp_path, Pretended())
            return super().results(jobs)

    carried_out(runs(0), tmp_path, Nested())
    assert seeds_in(tmp_path) == [0]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(StorageError, match="holds something else than a sweep"):
        carried_out(runs(0), tmp_path, Pretended())
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_the_figures_of_a_row(tmp_path: Path) -> None:
    table = carried_out([run(3, {"bound": 0.1}), run(4, {"bound": "adaptive"})], tmp_path, Pretended()).table
    assert table is not None
    assert table["bound"].to_list() == ["0.1", "0.1", "adaptive", "adaptive"]
    row = table.row(1, named=True)
    assert (row["seed"], row["round"], row["accuracy"], row["engine"], row["run"]) == (3, 2, 0.3, "looped", "bound=0.1,seed=3")
    assert (row["num_recovered"], row["num_direct"], row["erased"]) == (3, 1, 2)
    assert table["slots"].to_list() == [3, 4, 3, 4]  # two attempts and a relay slot, then one attempt
    assert table["bytes"].to_list() == [1000, 2000, 1000, 2000]
    from_csv = pl.read_csv(tmp_path / "table.csv")
    assert from_csv.drop("loss").equals(table.drop("loss"))


def test_a_label_is_not_called_like_a_column(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="slots"):
        carried_out([run(0, {"slots": 3})], tmp_path, Pretended())
