"""Traces, run folders and pictures."""

import json
from pathlib import Path

import numpy as np
import pytest

from dncfl.common.channel import BernoulliChannel, RayleighChannel
from dncfl.common.config import Config, load_config
from dncfl.common.errors import DataError, StorageError
from dncfl.common.scheme import channel, network_code
from dncfl.common.trace import AttemptTrace, TraceChannel, read_trace
from dncfl.launch.picture import draw_run, measured_outage
from dncfl.launch.reference import as_recorded, simulated
from dncfl.server.records import RoundRecord, attempt_figures, link_figures, summarise
from dncfl.server.run_folder import RunFolder
from tests.unit.updates import format_of

TRACE = AttemptTrace(round=1, attempt=1, slot1=("-ed", "d-e"), relay=("l", "d"))


def _record(round: int) -> RoundRecord:
    return RoundRecord(
        round=round,
        accuracy=0.25 * round,
        loss=2.0,
        recall=(0.5, 0.25),
        train_loss=2.1,
        recovered=(0, 1),
        direct=(0,),
        attempts=1,
        relay_slots=1,
        relay_slots_saved=0,
        bytes_sent=1000,
        bytes_saved=0,
        rank=2,
        suspects=(),
        num_dropped=0,
        transmissions={"sent": 2, "delivered": 1, "erased": 0, "lost": 1},
        lost_links={"1->ps": 1},
        clip_fraction=0.0,
        bytes={},
        seconds={"total": 1.0},
    )


def test_a_trace_is_played_back(tmp_path: Path) -> None:
    outage = np.full((4, 5), 0.4)
    config = load_config(None, {"clients": 4, "pe": 0.4})
    original = simulated(config, BernoulliChannel(3, outage), 2)
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(trace.model_dump_json() + "\n" for trace in original.traces))
    over_links = simulated(config, TraceChannel(read_trace(path), 4), 2)
    again = as_recorded(config, read_trace(path), 2)
    assert over_links.traces == again.traces == original.traces
    assert over_links.recovered == again.recovered == original.recovered
    with pytest.raises(DataError, match="nothing for round 3"):
        as_recorded(config, read_trace(path), 3)
    with pytest.raises(DataError, match="does not fit 5 clients"):
        as_recorded(load_config(None, {"clients": 5}), read_trace(path), 2)


def test_each_transmission_is_counted_once_by_what_became_of_it() -> None:
    figures = link_figures([TRACE, AttemptTrace(round=1, attempt=2, slot1=("-ll", "l-d"), relay=("de", "ll"))])
    assert figures["transmissions"] == {"sent": 6 + 8, "delivered": 3 + 2, "erased": 2 + 1, "lost": 1 + 5}
    assert figures["lost_links"] == {"0->ps": 1 + 1, "0->1": 1, "1->0": 1, "1->ps": 2}


@pytest.mark.parametrize(
    ("settings", "sent", "saved"),
    [
        ({}, (2 * 116 + 116) * 3, 3 * 116 * 3),  # 16 symbols beside 100 levels, a byte each
        ({"clients": 20}, 2 * 20 * 116 + 20 * 116 * 2, 37 * 20 * 116 * 2),  # p = 401: a codeword's symbols take two
        ({"clients": 20, "levels": 300}, (2 + 1) * 20 * 116 * 2, 37 * 20 * 116 * 2),  # and so do these levels
        ({"method": "repetition"}, (2 + 1) * 3 * 116, 3 * 3 * 116),
        ({"method": "colrel"}, (2 * 116 + 404) * 3, 404 * 3),  # a sum: 4 bytes a value, and a checksum
    ],
)
def test_bytes_of_symbols(settings: dict[str, object], sent: int, saved: int) -> None:
    """Two attempts, with one relay slot between them."""
    config = load_config(None, {"clients": 3, **settings})
    M = config.clients
    rows = ("-" * (M + 1),) * M
    attempts = [AttemptTrace(round=1, attempt=k, slot1=rows, relay=("d" * (k == 1),) * M) for k in (1, 2)]
    figures = attempt_figures(attempts, network_code(config), format_of(100, config.levels))
    assert (figures["bytes_sent"], figures["bytes_saved"]) == (sent, saved)


def test_a_trace_without_listeners_is_no_trace_for_relays() -> None:
    trace = AttemptTrace(round=1, attempt=1, slot1=("--d", "--d"), relay=("", ""))
    channel = TraceChannel([trace], 2)
    assert channel.delivers(round=1, attempt=1, slot=1, receiver=2).all()
    with pytest.raises(DataError, match="without listening"):
        channel.delivers(round=1, attempt=1, slot=1, receiver=0)


@pytest.mark.parametrize("num_clients", [1, 3])
def test_a_trace_of_another_number_of_nodes(num_clients: int) -> None:
    with pytest.raises(DataError, match=f"the trace is of 2 nodes in round 1: the run has {num_clients}"):
        TraceChannel([TRACE], num_clients)


def test_a_trace_at_hand_is_used_by_the_trace_channel_alone(tmp_path: Path) -> None:
    """As a node has one that was started with --trace."""
    config = load_config(None, {"clients": 2}).model_copy(update={"trace": str(tmp_path / "nowhere.jsonl")})
    assert isinstance(channel(config), RayleighChannel)


def test_a_trace_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"cannot be read: No such file or directory$"):
        read_trace(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match=r"is not a trace of dncfl: .*invalid start byte"):
        read_trace(tmp_path / "trace.jsonl")


@pytest.mark.parametrize("content", ["{", '{"round": 1}', '{"round": 0, "attempt": 1, "slot1": [], "relay": []}', "[]"])
def test_what_is_no_trace_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "trace.jsonl").write_text(content + "\n")
    with pytest.raises(DataError, match="is not a trace of dncfl: line 1: "):
        read_trace(tmp_path / "trace.jsonl")


def test_outage_is_measured_per_link_by_what_the_channel_let_through() -> None:
    other = AttemptTrace(round=2, attempt=1, slot1=("-dd", "d-d"), relay=("d", "e"))
    outage = measured_outage([TRACE, other])
    assert np.array_equal(outage, [[np.nan, 0.5, 0.0], [0.0, np.nan, 0.5]], equal_nan=True)


def test_a_run_folder_holds_the_run(tmp_path: Path) -> None:
    config = load_config(None, {"clients": 2, "out": str(tmp_path / "run")})
    folder = RunFolder.create(config)
    for round in (1, 2):
        folder.add_round(_record(round), [TRACE.model_copy(update={"round": round})])
    folder.finish({"weight": np.ones(3, dtype=np.float32)}, {"final_accuracy": 0.5})
    metrics = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["accuracy"] for line in metrics] == [0.25, 0.5]
    assert [trace.round for trace in read_trace(folder.path / "trace.jsonl")] == [1, 2]
    assert load_config(folder.path / "config.toml", {}).clients == 2
    picture = draw_run(folder.path, [_record(1), _record(2)], "a run")
    assert picture.read_bytes().startswith(b"\x89PNG")


THETA = np.arange(5, dtype=np.float32)


def _stopped_run(path: Path, rounds: int) -> Config:
    """A folder in which this many rounds are done."""
    config = load_config(None, {"clients": 2, "out": str(path)})
    folder = RunFolder.create(config)
    for round in range(1, rounds + 1):
        folder.add_round(_record(round), [TRACE.model_copy(update={"round": round})])
        folder.checkpoint(THETA * round, round)
    folder.close()
    return config


def test_a_run_goes_on_after_its_last_checkpoint_and_takes_back_what_is_beyond(tmp_path: Path) -> None:
    config = _stopped_run(tmp_path / "run", 2)
    with (tmp_path / "run" / "trace.jsonl").open("a") as trace:
        trace.write(TRACE.model_copy(update={"round": 3}).model_dump_json() + "\n" + '{"round": 3, "att')
    with (tmp_path / "run" / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"round": 3')
    (tmp_path / "run" / "checkpoint.safetensors.new").write_bytes(b"half of the thi")
    folder, checkpoint = RunFolder.reopen(tmp_path / "run")
    assert checkpoint.theta is not None
    assert np.array_equal(checkpoint.theta, THETA * 2)
    assert checkpoint.records == [_record(1), _record(2)]
    assert (folder.path / "metrics.jsonl").read_text().endswith('{"round": 3'), "nothing is changed before it goes on"
    folder.go_on(config, 2)
    assert [trace.round for trace in read_trace(folder.path / "trace.jsonl")] == [1, 2]
    folder.add_round(_record(3), [TRACE.model_copy(update={"round": 3})])
    assert (folder.path / "metrics.jsonl").read_text().count("\n") == 3
    folder.close()


@pytest.mark.parametrize("junk", [b"\xff\xfe\n", b"[3]\n", b'{"no": "round"}\n', b'{"round": "3"}\n'])
@pytest.mark.parametrize("name", ["metrics.jsonl", "trace.jsonl"])
def test_what_is_no_record_is_taken_back_too(tmp_path: Path, name: str, junk: bytes) -> None:
    config = _stopped_run(tmp_path / "run", 2)
    whole = (tmp_path / "run" / name).read_bytes()
    (tmp_path / "run" / name).write_bytes(whole + junk)
    folder, _ = RunFolder.reopen(tmp_path / "run")
    folder.go_on(config, 2)
    folder.close()
    assert (tmp_path / "run" / name).read_bytes() == whole


def test_a_run_that_was_killed_in_its_first_round_begins_again(tmp_path: Path) -> None:
    _stopped_run(tmp_path / "run", 0)
    folder, checkpoint = RunFolder.reopen(tmp_path / "run")
    assert (checkpoint.theta, checkpoint.rounds_done) == (None, 0)
    folder.close()


def test_two_processes_cannot_have_the_same_run(tmp_path: Path) -> None:
    _stopped_run(tmp_path / "run", 1)
    folder, _ = RunFolder.reopen(tmp_path / "run")
    with pytest.raises(StorageError, match="in use by another dncfl"):
        RunFolder.reopen(tmp_path / "run")
    folder.close()
    RunFolder.reopen(tmp_path / "run")[0].close()


@pytest.mark.parametrize("damage", [b"", b"junk" * 100], ids=["empty", "junk"])
def test_a_damaged_checkpoint_is_told(tmp_path: Path, damage: bytes) -> None:
    _stopped_run(tmp_path / "run", 1)
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(damage)
    with pytest.raises(StorageError, match="is no run that could go on"):
        RunFolder.reopen(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 1


def test_rounds_without_a_checkpoint_are_not_taken_back(tmp_path: Path) -> None:
    """As `dncfl simulate` leaves them."""
    _stopped_run(tmp_path / "run", 2)
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    with pytest.raises(StorageError, match="holds rounds but no checkpoint: only what run and server wrote can go on"):
        RunFolder.reopen(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2


def test_a_checkpoint_with_lost_records_is_told(tmp_path: Path) -> None:
    _stopped_run(tmp_path / "run", 2)
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(StorageError, match="holds 0 rounds of the 2 that are done"):
        RunFolder.reopen(tmp_path / "run")


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(StorageError, match="is not empty; nothing is overwritten"):
        RunFolder.create(load_config(None, {"out": str(tmp_path)}))
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        RunFolder.create(load_config(None, {"out": str(tmp_path / "file" / "run")}))


def test_new_folders_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [RunFolder.create(load_config(None, {})).path for _ in range(3)]
    assert len(set(paths)) == 3


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    folder = RunFolder.create(load_config(None, {"out": str(tmp_path)}))
    folder.discard()
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_round_is_removed(tmp_path: Path) -> None:
    folder = RunFolder.create(load_config(None, {"out": str(tmp_path / "run")}))
    folder.discard()
    folder.close()
    assert not folder.path.exists()


def test_a_summary_of_nothing_and_of_something() -> None:
    assert summarise([], 2)["final_accuracy"] is None
    summary = summarise([_record(1), _record(2)], 2)
    assert summary["transmissions"] == {"sent": 4, "delivered": 2, "erased": 0, "lost": 2}
    assert summary["lost_links"] == {"1->ps": 2}
    assert (summary["final_accuracy"], summary["mean_direct"], summary["rounds_all_recovered"]) == (0.5, 1.0, 2)
