"""Runs with faults in them: each fault took place, the run got over it, and its trace gives the same model."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import COMMAND, call, start, summary, summary_here

OPTIONS = ["--clients", 4, "--rounds", 6, "--local-epochs", 1, "--pe", 0.2, "--patience", 2, "--slot-patience", 1]


def _run(tmp_path: Path, *options: object) -> dict[str, Any]:
    """The summary of a run with faults, after its faults and its replay were checked."""
    result = summary("run", *OPTIONS, *options, "--out", "run", cwd=tmp_path)
    assert result["rounds_done"] == result["rounds"]
    asked = [options[i + 1] for i, option in enumerate(options) if option == "--fault"]
    struck = [json.loads(line)["fault"] for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert sorted(struck) == sorted(map(str, asked))
    replayed = summary_here("replay", "run", "--out", "replayed", cwd=tmp_path)
    assert replayed["model_sha256"] == result["model_sha256"]
    return result


def _recovered(tmp_path: Path) -> list[list[int]]:
    return [json.loads(line)["recovered"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]


def _honest(tmp_path: Path, *options: object) -> str:
    model: str = summary_here("simulate", *OPTIONS, *options, "--out", "honest", cwd=tmp_path)["model_sha256"]
    return model


def test_sixty_trials_of_all_kinds(tmp_path: Path) -> None:
    """Every kind of fault, at points of the round drawn at random; and a run whose PS is killed five times."""
    command = [*COMMAND, "trials", "--trials", "60", "--server-trials", "1", "--log", "trials.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert len(trials) == 61
    assert all(trial["passed"] for trial in trials)
    assert len({trial["name"] for trial in trials}) >= 10
    assert sum(trial["num_lost"] > 0 for trial in trials) >= 20


def test_a_node_that_is_killed_and_started_again_counts_again(tmp_path: Path) -> None:
    result = _run(tmp_path, "--rounds", 40, "--fault", "kill:2:2:before-training:0.2")
    recovered = _recovered(tmp_path)
    assert 2 in recovered[0]
    assert 2 not in recovered[1]
    assert 2 in recovered[-1] + recovered[-2] + recovered[-3]
    assert result["transmissions"]["lost"] > 0
    assert all("2" in link for link in result["lost_links"])


def test_each_kill_lasts_as_long_as_it_says(tmp_path: Path) -> None:
    """And a run that goes on, with its nodes anew, does not take an earlier kill for the one that strikes."""
    kills = ["kill:2:2:before-training:0.2", "kill:2:30:before-training", "kill:2:45:before-training"]
    summary("run", *OPTIONS, "--rounds", 40, *(x for kill in kills for x in ("--fault", kill)), "--out", "run", cwd=tmp_path)
    summary("run", "--resume", "run", "--rounds", 60, cwd=tmp_path)
    struck = [json.loads(line)["fault"] for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert struck == kills
    recovered = _recovered(tmp_path)
    assert 2 in recovered[28]
    assert not any(2 in nodes for nodes in recovered[29:40])
    assert 2 in recovered[43]
    assert not any(2 in nodes for nodes in recovered[44:])


def test_an_error_that_is_asked_for_at_the_server_ends_the_run_which_goes_on(tmp_path: Path) -> None:
    fault = "exception:ps:2:before-decode"
    exit_code, _, stderr = call("run", *OPTIONS, "--fault", fault, "--out", "run", cwd=tmp_path)
    assert exit_code == 16
    assert stderr.splitlines()[-1] == f"dncfl: asked for by the fault {fault}"
    assert "go on with: dncfl run --resume run" in stderr
    assert len(_recovered(tmp_path)) == 1
    assert summary("run", "--resume", "run", cwd=tmp_path)["model_sha256"] == _honest(tmp_path)


def test_a_fault_whose_point_never_comes_is_told(tmp_path: Path) -> None:
    faults = ["--fault", "kill:1:5:before-training", "--fault", "delay:1:1:before-training:0.1"]
    exit_code, _, stderr = call(
        "run", "--clients", 2, "--rounds", 2, "--local-epochs", 1, *faults, "--out", "run", cwd=tmp_path
    )
    assert exit_code == 0
    assert "warning: faults that have not struck: kill:1:5:before-training\n" in stderr


def test_a_stopped_node_is_left_behind_and_comes_back(tmp_path: Path) -> None:
    """Stopped for 4 s, of which 2 are patience; the slow rounds of others leave it the time to come back."""
    slow = ["--fault", "slow:0:3:before-training", "--local-epochs", 3]
    _run(tmp_path, "--rounds", 8, *slow, "--fault", "stop:2:2:before-slot-1:4")
    recovered = _recovered(tmp_path)
    assert 2 not in recovered[1] + recovered[2]
    assert 2 in recovered[-1]


def test_an_exception_in_training_costs_the_round_and_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    steps = 0\n"
        "    def __init__(self): super().__init__(); self.linear = nn.Linear(784, 10)\n"
        "    def forward(self, x):\n"
        "        Net.steps += self.training\n"
        "        if Net.steps == 15: raise ValueError('the fifteenth step')\n"
        "        return self.linear(x.flatten(1))\n"
    )
    code, _, stderr = call("run", *OPTIONS, "--clients", 3, "--model", "mine:Net", "--min-nodes", 1, cwd=tmp_path)
    assert code in (0, 6)  # all nodes meet their fifteenth step in the same round
    assert "takes no part in round 1: training at node" in stderr
    assert "ValueError: the fifteenth step" in stderr
    assert "mine.py" in stderr


@pytest.mark.parametrize("kind", ["corrupt", "duplicate", "replay"])
def test_damaged_doubled_and_old_frames_change_no_model(tmp_path: Path, kind: str) -> None:
    """With perfect links the damaged message of node 1 is lost everywhere; doubled and old ones are refused."""
    result = _run(tmp_path, "--pe", 0, "--fault", f"{kind}:1:3:before-slot-1")
    if kind == "corrupt":
        assert result["damaged_frames"] == 1
        assert result["lost_links"] == {"1->0": 1, "1->2": 1, "1->3": 1, "1->ps": 1}
        assert _recovered(tmp_path)[2] == [0, 1, 2, 3]  # node 1 relays its own message, which arrives
    else:
        assert result["stale_frames"] == 1
        assert result["transmissions"]["lost"] == 0
    assert result["model_sha256"] == _honest(tmp_path, "--pe", 0)


@pytest.mark.parametrize("schedule", ["--early-stop", "--no-early-stop"])
def test_a_relay_that_lies_is_named_and_the_model_is_the_honest_one(tmp_path: Path, schedule: str) -> None:
    """Without early stop the lie is surplus; with it, a relay slot that is needed holds the lie, and another tells."""
    options = ["--pe", 0.4, "--seed", 3, schedule]
    result = _run(tmp_path, *options, *(x for r in range(1, 7) for x in ("--fault", f"lie:1:{r}:before-slot-2")))
    assert result["suspects"] == [1]
    assert result["dropped_equations"] >= 1
    assert result["model_sha256"] == _honest(tmp_path, *options)


def test_a_message_that_does_not_prove_itself_is_not_passed_on(tmp_path: Path) -> None:
    """Node 1 sends a damaged message in slot 1, under a digest that fits; nobody relays it, and nobody looks like a liar."""
    result = _run(tmp_path, "--pe", 0, "--fault", "lie:1:3:before-slot-1")
    assert result["suspects"] == [1]
    assert result["lost_links"] == {"1->0": 1, "1->2": 1, "1->3": 1}
    assert result["model_sha256"] == _honest(tmp_path, "--pe", 0)


def test_a_cut_link_loses_and_heals(tmp_path: Path) -> None:
    result = _run(tmp_path, "--rounds", 30, "--pe", 0, "--fault", "cut:1-2:3:before-training:2")
    lost = [json.loads(line)["lost_links"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lost[2] == {"2->1": 1}
    assert lost[-1] == {}
    assert result["model_sha256"] == _honest(tmp_path, "--rounds", 30, "--pe", 0)


def test_a_slow_node_is_waited_for(tmp_path: Path) -> None:
    options = ["--rounds", 3, "--local-epochs", 5]
    result = _run(tmp_path, *options, "--fault", "slow:3:2:before-training")
    assert result["transmissions"]["lost"] == 0
    assert result["model_sha256"] == _honest(tmp_path, *options)


def test_a_step_longer_than_the_patience_is_no_death(tmp_path: Path) -> None:
    """Five seconds in one step, with a patience of two for silence and of one for slots."""
    (tmp_path / "mine.py").write_text(
        "import time\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    steps = 0\n"
        "    def __init__(self): super().__init__(); self.linear = nn.Linear(784, 10)\n"
        "    def forward(self, x):\n"
        "        Net.steps += self.training\n"
        "        if Net.steps == 2: time.sleep(5)\n"
        "        return self.linear(x.flatten(1))\n"
    )
    result = summary("run", *OPTIONS, "--rounds", 2, "--model", "mine:Net", "--out", "run", cwd=tmp_path)
    assert result["transmissions"]["lost"] == 0
    assert result["median_round_seconds"]["training"] > 0
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line)["seconds"]["training"] for line in metrics) > 5


def test_a_wedged_trainer_is_found(tmp_path: Path) -> None:
    """A step that never ends at one node: its heart beats, but it makes no progress."""
    (tmp_path / "mine.py").write_text(
        "import os, time\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.linear = nn.Linear(784, 10)\n"
        "    def forward(self, x):\n"
        "        try:\n"
        "            if self.training: os.close(os.open('wedged', os.O_CREAT | os.O_EXCL)); time.sleep(3600)\n"
        "        except FileExistsError: pass  # another node was first\n"
        "        return self.linear(x.flatten(1))\n"
    )
    options = ["--rounds", 2, "--model", "mine:Net", "--training-patience", 3]
    code, _, stderr = call("run", *OPTIONS, *options, "--out", "run", cwd=tmp_path)
    assert code == 0, stderr
    assert "is gone: it has made no progress for 3 s" in stderr
    assert [len(nodes) for nodes in _recovered(tmp_path)] == [3, 3]


def test_a_run_of_its_own_folder_cannot_be_resumed_while_it_goes_on(tmp_path: Path) -> None:
    process = start("run", *OPTIONS, "--rounds", 100_000, "--out", "run", cwd=tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text()):
        pass  # polls a file that another process writes
    code, _, stderr = call("run", "--resume", "run", cwd=tmp_path)
    assert (code, stderr) == (4, "dncfl: the run folder run is in use by another dncfl\n")
    process.terminate()
    process.communicate()


def test_a_full_run_cannot_be_resumed_but_can_be_taken_further(tmp_path: Path) -> None:
    summary("run", *OPTIONS, "--rounds", 2, "--out", "run", cwd=tmp_path)
    code, _, stderr = call("run", "--resume", "run", cwd=tmp_path)
    assert code == 2
    assert "all 2 rounds in run are done; --rounds takes the run further" in stderr
    before = (tmp_path / "run" / "config.toml").read_text()
    code, _, stderr = call("run", "--resume", "run", "--rounds", 1, cwd=tmp_path)
    assert code == 2
    assert "rounds = 1: 2 are done in run already; ask for more" in stderr
    assert (tmp_path / "run" / "config.toml").read_text() == before, "a refused resume changes nothing"
    code, _, stderr = call("run", "--resume", "run", "--snr", 5, cwd=tmp_path)
    assert code == 2
    assert "--snr would change the run that is resumed" in stderr
    further = summary("run", "--resume", "run", "--rounds", 4, cwd=tmp_path)
    assert further["rounds_done"] == 4
    assert further["model_sha256"] == _honest(tmp_path, "--rounds", 4)
