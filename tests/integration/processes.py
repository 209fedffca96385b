"""Commands of dncfl as the processes that a user would start."""

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dncfl.launch.cli import cli

COMMAND = [sys.executable, "-m", "dncfl.launch"]
TIMEOUT = 240


def start(*arguments: object, cwd: Path, within: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A command in the background, with its output kept; `within`: a command that runs it."""
    return subprocess.Popen(
        [*within, *COMMAND, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Read what a process says on stderr until a line has the pattern; the first group of it."""
    assert process.stderr is not None
    while line := process.stderr.readline():
        if match := re.search(pattern, line):
            return str(match[1])
    raise AssertionError(f"{pattern!r} never came")


def finish(process: subprocess.Popen[str], timeout: float = TIMEOUT) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a started command."""
    stdout, stderr = process.communicate(timeout=timeout)
    return process.returncode, stdout, stderr


def call(*arguments: object, cwd: Path) -> tuple[int, str, str]:
    """A command from start to end."""
    return finish(start(*arguments, cwd=cwd))


def summary(*arguments: object, cwd: Path) -> dict[str, Any]:
    """The summary that a command prints with --json. It must succeed."""
    exit_code, stdout, stderr = call(*arguments, "--json", cwd=cwd)
    assert exit_code == 0, stderr
    result: dict[str, Any] = json.loads(stdout)
    return result


def summary_here(*arguments: object, cwd: Path) -> dict[str, Any]:
    """As `summary`, in this process: a command without sockets, where a new process would only import torch again."""
    output = io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(output):
        cli([*map(str, arguments), "--json"], standalone_mode=False)
    result: dict[str, Any] = json.loads(output.getvalue())
    return result
