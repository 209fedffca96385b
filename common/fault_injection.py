"""Faults on purpose, carried out: the part that any process can do to itself.

Every fault that strikes leaves a line in the run folder's faults.jsonl before it does its harm.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

from dncfl.common.errors import InjectedFault
from dncfl.common.faults import Fault, seconds_of

WAKER_SECONDS = 0.1
"""How often the child of a stopped process looks whether that is still there."""


class FaultInjector:
    """The faults of one process: says which are due, and does what any process can do to itself."""

    def __init__(self, faults: Iterable[Fault], log: Path | None) -> None:
        """`log`: the file that gets a line for each fault that strikes; none strikes twice, whatever starts again."""
        struck = faults_in(log)
        self._waiting = [fault for fault in faults if str(fault) not in struck]
        self._log = log

    def strike(self, point: str, round: int) -> list[Fault]:
        """Carry out the faults that are due here, and return those that only the caller can carry out.

        Raises InjectedFault for an exception.
        """
        due = [fault for fault in self._waiting if (fault.point, fault.round) == (point, round)]
        self._waiting = [fault for fault in self._waiting if fault not in due]
        for fault in due:
            self._record(fault)
        for fault in due:
            if fault.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault.kind == "stop":
                _stop(seconds_of(fault))
            if fault.kind == "exception":
                raise InjectedFault(f"asked for by the fault {fault}")
        return [fault for fault in due if fault.kind not in ("kill", "stop")]

    def _record(self, fault: Fault) -> None:
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(json.dumps({"fault": str(fault), **fault.model_dump(exclude_none=True)}) + "\n")


def faults_in(log: Path | None) -> list[str]:
    """The faults that have struck, in the order of a file of them."""
    return [json.loads(line)["fault"] for line in log.read_text().splitlines()] if log and log.exists() else []


def _stop(seconds: float) -> None:
    """Stop this process; a child of it, which is not stopped, lets it go on, or ends with it."""
    pid, steps = os.getpid(), round(seconds / WAKER_SECONDS)
    quiet = "exec </dev/null >/dev/null 2>&1"
    wait = f"{quiet}; for _ in $(seq {steps}); do kill -0 {pid} || exit; sleep {WAKER_SECONDS}; done; kill -CONT {pid}"
    subprocess.Popen(["/bin/sh", "-c", wait], start_new_session=True)
    os.kill(pid, signal.SIGSTOP)
