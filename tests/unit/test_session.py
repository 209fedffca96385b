"""What a session does with a run that ends early."""

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from dncfl.common.config import load_config
from dncfl.common.errors import NodeFailed
from dncfl.launch.display import Display
from dncfl.launch.reference import over_channel, reference_rounds
from dncfl.launch.session import Session


def test_a_folder_that_cannot_be_completed_does_not_hide_why_the_run_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(None, {"clients": 2, "local_epochs": 1, "out": str(tmp_path / "run")})
    session = Session("simulate", config, Display(config, Console(stderr=True, width=200)))

    def work() -> None:
        record, attempts = next(reference_rounds(config, session.model, over_channel(config)))
        session.add_round(record, attempts)
        shutil.rmtree(session.folder.path)
        raise NodeFailed("the real reason")

    with pytest.raises(NodeFailed, match="the real reason"):
        session.carry_out(work)
    told = capsys.readouterr().err
    assert "run cannot be written" in told
    assert "finished round" not in told, "they are not there any more"


def test_how_to_go_on_is_told_even_where_the_summary_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(None, {"clients": 2, "local_epochs": 1, "out": str(tmp_path / "run")})
    session = Session("run", config, Display(config, Console(stderr=True, width=200)))

    def work() -> None:
        record, attempts = next(reference_rounds(config, session.model, over_channel(config)))
        session.add_round_and_checkpoint(record, attempts, session.model.theta)
        (tmp_path / "run" / "summary.json").mkdir()
        raise NodeFailed("the real reason")

    with pytest.raises(NodeFailed, match="the real reason"):
        session.carry_out(work)
    told = capsys.readouterr().err
    assert "run cannot be written" in told
    assert f"1 finished round is in {tmp_path}/run; go on with: dncfl run --resume {tmp_path}/run" in told
