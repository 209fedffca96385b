"""Trials by fault: run after run with a fault in each, over real processes, and each trace replayed.

A trial passes when its fault struck, the run did all its rounds within the time allowed, and the replay of its trace ends
with the same model. Trials of the PS itself kill it at a random moment and resume it until it is done; they pass when the
model is that of the reference.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console

from dncfl.common.config import Config, load_config
from dncfl.common.errors import DncflError, TrialsFailed
from dncfl.common.faults import Fault
from dncfl.common.running import run_until_signal
from dncfl.common.storage import writing
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.launch.local import LocalNodes
from dncfl.launch.reference import Communication, as_recorded, over_channel, reference_rounds
from dncfl.launch.serving import serve_nodes
from dncfl.server.global_model import GlobalModel
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord, link_figures

ROUNDS = 4
SECONDS_ALLOWED = 60.0
KINDS = ("kill", "kill and restart", "stop", "exception", "delay", "corrupt", "lie", "slow", "duplicate", "replay", "cut")
STOP_SECONDS = 30.0
KILLS = 5
"""How often the PS of one run is killed."""


@dataclass(frozen=True)
class Trial:
    """What went wrong on purpose in one run, and how the run took it."""

    name: str
    fault: str
    passed: bool
    seconds: float
    num_lost: int
    """transmissions that were lost, over all links"""
    complaint: str


def planned(num_trials: int, seed: int) -> Iterator[Config]:
    """The runs of the trials: every kind at every point in turn, for 4 and for 10 nodes, in an order drawn from the seed."""
    rng = np.random.default_rng(seed)
    cases = [(clients, kind, point) for clients in (4, 10) for kind in KINDS for point in _points(clients)]
    while num_trials > 0:
        for i in rng.permutation(len(cases))[:num_trials]:
            clients, kind, point = cases[i]
            yield _config(clients, kind, point, rng)
        num_trials -= len(cases)


def _points(clients: int) -> list[str]:
    places = ["join", "training", *(f"slot-{slot}" for slot in range(1, clients + 1))]
    return [f"{when}-{place}" for place in places for when in ("before", "after")]


def _config(clients: int, kind: str, point: str, rng: np.random.Generator) -> Config:
    node = int(rng.integers(clients))
    seconds = {"kill and restart": 0.3, "stop": STOP_SECONDS, "cut": 2.0}.get(kind)
    fault = Fault(
        kind="kill" if kind == "kill and restart" else kind,  # type: ignore[arg-type]  # one of the kinds above
        node=node,
        round=0 if point.endswith("join") else int(rng.integers(1, ROUNDS + 1)),
        point=point,
        seconds=seconds,
        peer=(node + 1) % clients if kind == "cut" else None,
    )
    relays = int(point.rpartition("-")[2]) > 1 if "slot" in point else bool(rng.integers(2))
    settings: dict[str, object] = {
        "clients": clients,
        "rounds": ROUNDS,
        "local_epochs": 1,
        "pe": 0.2,
        "early_stop": not relays,  # or the relay slot of the fault might not be needed
        "patience": 2.0,
        "slot_patience": 1.0,
        "seed": int(rng.integers(2**31)),
        "faults": [fault],
    }
    return load_config(None, settings)


class _Run(Observer):
    """A run of one trial and what it leaves."""

    def __init__(self, config: Config) -> None:
        self.model = GlobalModel(config)
        self.traces: list[AttemptTrace] = []
        self.server = ServerProcess(config, self.model, self._record, self)

    def _record(self, record: RoundRecord, attempts: Sequence[AttemptTrace], theta: Vector) -> None:
        self.traces.extend(attempts)

    @property
    def num_lost(self) -> int:
        lost: int = link_figures(self.traces)["transmissions"]["lost"]
        return lost


def fault_trial(config: Config) -> Trial:
    """One run with the faults of its configuration, and the replay of its trace."""
    (fault,) = config.faults
    run, started, complaint = _Run(config), perf_counter(), ""
    nodes = LocalNodes(config, "critical")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "faults.jsonl"
        try:
            run_until_signal(asyncio.wait_for(serve_nodes(run.server, nodes, log), SECONDS_ALLOWED))
        except TimeoutError:
            complaint = f"it did not end within {SECONDS_ALLOWED:g} s"
        except DncflError as error:
            complaint = str(error)
        if not complaint and not log.exists():
            complaint = "the fault did not strike"
    seconds = perf_counter() - started
    if not complaint:
        replayed = _reference_hash(config, lambda number: as_recorded(config, run.traces, number))
        complaint = "" if replayed == run.model.sha256 else "the replay ends with another model"
    name = f"{fault.kind}{' and restart' if fault.kind == 'kill' and fault.seconds else ''}"
    return Trial(name, f"M={config.clients} {fault}", not complaint, seconds, run.num_lost, complaint)


def server_trial(seed: int) -> Trial:
    """A run whose PS is killed at random moments and resumed each time, against the reference."""
    rng = np.random.default_rng(seed)
    config = load_config(None, {"clients": 3, "rounds": 60, "local_epochs": 1, "pe": 0.3, "seed": int(rng.integers(2**31))})
    started, kills, complaint = perf_counter(), 0, ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "config.toml").write_text(config.to_toml())
        command = [sys.executable, "-m", "dncfl.launch", "run", "config.toml", "--out", "run", "--json"]
        while True:
            with subprocess.Popen(command, cwd=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                try:
                    if kills < KILLS:
                        _wait_for_a_round(process, path / "run" / "metrics.jsonl")
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(float(rng.uniform(0, 0.5)))  # the random moment
                        kills += process.poll() is None
                        process.kill()
                    stdout, stderr = process.communicate()
                except BaseException:
                    process.kill()
                    raise
            if process.returncode != -signal.SIGKILL:
                break
            command = [sys.executable, "-m", "dncfl.launch", "run", "--resume", "run", "--json"]
        if process.returncode:
            complaint = f"exit code {process.returncode}: {stderr[-300:]}"
        elif kills < KILLS:
            complaint = f"the run was over after {kills} of {KILLS} kills"
        else:
            same = json.loads(stdout)["model_sha256"] == _reference_hash(config, over_channel(config))
            complaint = "" if same else "the resumed run ends with another model than the reference"
    name = f"seed {seed}, {kills} kills"
    return Trial(f"kill the PS, {KILLS}×", name, not complaint, perf_counter() - started, 0, complaint)


def _reference_hash(config: Config, communicate: Callable[[int], Communication]) -> str:
    model = GlobalModel(config)
    deque(reference_rounds(config, model, communicate), maxlen=0)
    return model.sha256


def _wait_for_a_round(process: subprocess.Popen[str], metrics: Path) -> None:
    """Wait until one more round is done than before."""

    def num_rounds() -> int:
        return metrics.read_text().count("\n") if metrics.exists() else 0

    before = num_rounds()
    while process.poll() is None and num_rounds() <= before:
        try:
            process.wait(0.01)  # polls a file that the process writes
        except subprocess.TimeoutExpired:
            continue


def try_faults(num_trials: int, num_server_trials: int, seed: int, log: Path | None) -> None:
    """Do the trials and print a table; each also goes to `log` as a line of JSON. Raises TrialsFailed and StorageError."""
    if log is not None:
        with writing(f"the log {log}"):
            log.touch()  # before hours of trials
    console = Console()
    trials: list[Trial] = []

    def add(trial: Trial) -> None:
        trials.append(trial)
        if log is not None:
            with writing(f"the log {log}"), log.open("a") as file:
                file.write(json.dumps(trial.__dict__) + "\n")
        if not trial.passed:
            console.print(f"FAILED {trial.fault}: {trial.complaint}", highlight=False, markup=False)

    for config in planned(num_trials, seed):
        add(fault_trial(config))
    for number in range(num_server_trials):
        add(server_trial(seed + number))
    _print_table(console, trials)
    if failed := [trial for trial in trials if not trial.passed]:
        raise TrialsFailed(f"{len(failed)} of {len(trials)} trials failed; the first: {failed[0].fault}: {failed[0].complaint}")


def _print_table(console: Console, trials: Sequence[Trial]) -> None:
    num_trials, num_passed = Counter(trial.name for trial in trials), Counter(trial.name for trial in trials if trial.passed)
    console.print(f"{'fault':<18}{'trials':>8}{'passed':>8}{'with losses':>13}{'median s':>10}{'longest s':>11}")
    for name in (*num_trials, "all"):
        some = [trial for trial in trials if name in (trial.name, "all")]
        passed = num_passed[name] if name != "all" else num_passed.total()
        seconds = [trial.seconds for trial in some]
        lossy = sum(trial.num_lost > 0 for trial in some)
        console.print(
            f"{name:<18}{len(some):>8}{passed:>8}{lossy:>13}{np.median(seconds):>10.1f}{max(seconds):>11.1f}", highlight=False
        )
