"""Faults on purpose: how they are written, and that none strikes twice."""

import json
from pathlib import Path

import pytest

from dncfl.common.config import load_config
from dncfl.common.errors import ConfigError, InjectedFault
from dncfl.common.fault_injection import FaultInjector
from dncfl.common.faults import Fault, parse_faults

TEXTS = ["kill:2:3:before-training", "stop:0:1:after-slot-12:30", "cut:1-2:5:before-slot-1:0.5", "kill:ps:7:after-checkpoint"]


def test_a_fault_reads_as_it_is_written() -> None:
    faults = parse_faults(TEXTS)
    assert [str(fault) for fault in faults] == TEXTS
    assert faults[1] == Fault(kind="stop", node=0, round=1, point="after-slot-12", seconds=30)
    assert (faults[2].node, faults[2].peer) == (1, 2)
    assert faults[3].node is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kill", "is written KIND:WHO:ROUND:POINT"),
        ("burn:1:1:before-training", "burn:1:1:before-training: kind must be one of 'kill', 'stop', .* or 'cut'$"),
        ("kill:1:1:in-training", "kill:1:1:in-training: point must be before- or after- and join, training, slot-N, .*$"),
        ("stop:1:1:before-training:0", "stop:1:1:before-training:0: seconds must be greater than 0.0$"),
        ("stop:1:1:before-training:1.1.1", "stop:1:1:before-training:1.1.1: seconds must be a number$"),
        ("kill:ps:1:before-training", "the PS has the kinds"),
        ("lie:ps:1:before-decode", "the PS has the kinds"),
        ("kill:1:1:before-decode", "a node has the points"),
        ("cut:1:1:before-slot-1", "between two nodes"),
        ("kill:1-2:1:before-slot-1", "between two nodes"),
        ("cut:1-1:1:before-slot-1", "between two nodes"),
        ("kill:1:1:before-join", "round 0"),
        ("kill:1:0:before-training", "round 0"),
    ],
)
def test_what_cannot_strike_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_faults([text])
    with pytest.raises(ConfigError, match="faults"):
        load_config(None, {"faults": [text]})


def test_a_configuration_keeps_its_faults_and_does_not_send_them_to_nodes(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'clients = 4\n[[faults]]\nkind = "kill"\nnode = 3\nround = 1\npoint = "before-training"\n'
    )
    config = load_config(tmp_path / "run.toml", {})
    assert [str(fault) for fault in config.faults] == ["kill:3:1:before-training"]
    (tmp_path / "again.toml").write_text(config.to_toml())
    assert load_config(tmp_path / "again.toml", {}).faults == config.faults
    assert "faults" not in json.loads(config.to_json())
    with pytest.raises(ConfigError, match=r"kill:3:1:before-training: there are nodes 0\.\.2"):
        load_config(tmp_path / "run.toml", {"clients": 3})


def test_no_fault_strikes_twice_even_in_a_process_that_starts_again(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    faults = parse_faults(["exception:1:2:before-training", "delay:1:2:before-training:1", "lie:1:3:before-slot-1"])
    injector = FaultInjector(faults, log)
    assert injector.strike("before-training", 1) == []
    with pytest.raises(InjectedFault, match="asked for by the fault exception:1:2:before-training"):
        injector.strike("before-training", 2)
    assert injector.strike("before-training", 2) == []
    assert [json.loads(line)["fault"] for line in log.read_text().splitlines()] == [str(fault) for fault in faults[:2]]
    again = FaultInjector(faults, log)
    assert again.strike("before-training", 2) == []
    assert again.strike("before-slot-1", 3) == [faults[2]]
