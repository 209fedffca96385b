"""What a session does with a run that ends early."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from dncfl.common.config import load_config
from dncfl.common.errors import ConfigError, NodeFailed
from dncfl.common.trace import AttemptTrace
from dncfl.launch.display import Display
from dncfl.launch.reference import over_channel, reference_rounds
from dncfl.launch.session import Session
from dncfl.server.records import RoundRecord

Store = Callable[[Session, RoundRecord, Sequence[AttemptTrace]], None]


def _fails_after_a_round(command: str, path: Path, store: Store) -> None:
    """A run whose only round is stored, with some harm, before it ends for a reason of its own."""
    config = load_config(None, {"clients": 2, "local_epochs": 1, "out": str(path)})
    session = Session(command, config, Display(config, Console(stderr=True, width=200)))

    def work() -> None:
        store(session, *next(reference_rounds(config, session.model, over_channel(config))))
        raise NodeFailed("the real reason")

    with pytest.raises(NodeFailed, match="the real reason"):
        session.carry_out(work)


def test_a_folder_that_cannot_be_completed_does_not_hide_why_the_run_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def store(session: Session, record: RoundRecord, attempts: Sequence[AttemptTrace]) -> None:
        session.add_round(record, attempts)
        shutil.rmtree(session.folder.path)

    _fails_after_a_round("simulate", tmp_path / "run", store)
    told = capsys.readouterr().err
    assert "run cannot be written" in told
    assert "finished round" not in told, "they are not there any more"


def test_how_to_go_on_is_told_even_where_the_summary_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def store(session: Session, record: RoundRecord, attempts: Sequence[AttemptTrace]) -> None:
        session.add_round_and_checkpoint(record, attempts, session.model.theta)
        (session.folder.path / "summary.json").mkdir()

    _fails_after_a_round("run", tmp_path / "run", store)
    told = capsys.readouterr().err
    assert "run cannot be written" in told
    assert f"1 finished round is in {tmp_path}/run; go on with: dncfl run --resume {tmp_path}/run" in told


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 10))


@pytest.mark.parametrize(
    ("settings", "warned"),
    [({"bound": 0.1}, True), ({"bound": "adaptive"}, True), ({}, False), ({"bound": "adaptive", "model": "paper-cnn"}, False)],
    ids=str,
)
def test_one_bound_for_weights_and_batch_norm_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, object], warned: bool
) -> None:
    config = load_config(None, {"model": f"{__name__}:with_batch_norm", "out": str(tmp_path / "run")} | settings)
    Session("run", config, Display(config, Console(stderr=True, width=300))).folder.close()
    assert ("has floating-point buffers, as of batch norm" in capsys.readouterr().err) == warned


def test_a_device_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = load_config(None, {"device": "cuda", "out": str(tmp_path / "run")})
    with pytest.raises(ConfigError, match="device = cuda: torch finds no CUDA device here; use cpu"):
        Session("run", config, Display(config, Console(stderr=True)))
