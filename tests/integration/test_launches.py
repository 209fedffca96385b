"""Many launches at once on one machine: no two meet at a port.

`python -m tests.integration.test_launches 20 4` starts 20 runs of 4 nodes each.
"""

import sys
import tempfile
from pathlib import Path
from time import perf_counter

from tests.integration.processes import TIMEOUT, finish, start, summary_here

ROUNDS = 2
SECONDS_EACH = 15


def launch(number: int, clients: int, folder: Path) -> None:
    """So many runs at once: all end well, and with the model of the reference."""
    options = ["--clients", clients, "--rounds", ROUNDS, "--local-epochs", 1]
    runs = [start("run", *options, "--out", f"run-{i}", "--json", cwd=folder) for i in range(number)]
    outcomes = [finish(run, timeout=TIMEOUT + SECONDS_EACH * number) for run in runs]
    assert [exit_code for exit_code, _, _ in outcomes] == [0] * number, outcomes
    model = summary_here("simulate", *options, "--out", "simulated", cwd=folder)["model_sha256"]
    assert all(model in stdout for _, stdout, _ in outcomes)


def test_launches_at_once(tmp_path: Path) -> None:
    launch(4, 3, tmp_path)


if __name__ == "__main__":
    started = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        launch(int(sys.argv[1]), int(sys.argv[2]), Path(folder))
    sys.stdout.write(f"all ended with exit code 0 and the same model, in {perf_counter() - started:.0f} s\n")
