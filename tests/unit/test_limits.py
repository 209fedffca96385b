"""What the operating system must allow."""

import resource
import subprocess
from pathlib import Path

import pytest

from dncfl.common.errors import ConfigError
from dncfl.common.limits import ensure_files
from tests.integration.processes import COMMAND, TIMEOUT


def test_enough_files_are_left_as_they_are() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    ensure_files(10, "a run")
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_more_than_the_system_ever_allows_is_refused() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system allows any number of files")
    with pytest.raises(ConfigError, match=f"a run needs {hard + 1} open files, and {hard} are allowed here"):
        ensure_files(hard + 1, "a run")


def test_a_run_that_does_not_fit_is_refused_at_the_start_with_the_number(tmp_path: Path) -> None:
    command = " ".join(COMMAND)
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -n 128; exec {command} run --clients 32 --out run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "dncfl: a run of 32 nodes needs 224 open files, and 128 are allowed here: ulimit -n 224 allows them\n"
    assert not (tmp_path / "run").exists()
