"""Faults on purpose: what is to go wrong, where and when, so that a run can be tested against it.

A fault is written `KIND:WHO:ROUND:POINT[:SECONDS]`, as in `stop:2:3:before-slot-1:30`, or as a table with these names.

    KIND       kill       SIGKILL; with SECONDS, `dncfl run` starts the node again after that time
               stop       SIGSTOP, and SIGCONT after SECONDS
               slow       every training step takes ten times as long from here on
               exception  an error, in training where POINT is before-training
               delay      a pause of SECONDS
               corrupt    the next transmission arrives with a flipped bit
               lie        the next transmission holds wrong symbols with a digest that fits
               duplicate  the next transmission is sent twice
               replay     the next transmission is followed by the one before it
               cut        WHO = a-b: node a hears nothing of node b for SECONDS
    WHO        a node's number, or ps
    ROUND      from 1; 0 for the points around join
    POINT      before- or after- and join, training, slot-1, slot-2, … at a node; slot-1, …, decode, checkpoint at the PS

Every fault that strikes leaves a line in the run folder's faults.jsonl before it does its harm.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dncfl.common.errors import ConfigError

Kind = Literal["kill", "stop", "slow", "exception", "delay", "corrupt", "lie", "duplicate", "replay", "cut"]
POINT = r"^(before|after)-(join|training|decode|checkpoint|slot-[1-9]\d{0,2})$"
DEFAULT_SECONDS = {"stop": 10.0, "delay": 1.0, "cut": 10.0}
AT_SERVER = ("kill", "stop", "delay", "exception")
WAKER_SECONDS = 0.1
SLOWER = 10
"""How many times as long a step takes at a node that is slowed down."""


class Fault(BaseModel):
    """One fault of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    node: int | None = Field(default=None, ge=0, description="where it strikes; the PS unless given")
    round: int = Field(ge=0)
    point: str = Field(pattern=POINT)
    seconds: float | None = Field(default=None, gt=0)
    peer: int | None = Field(default=None, ge=0, description="of cut: whom the node does not hear")

    def __str__(self) -> str:
        who = "ps" if self.node is None else f"{self.node}" + (f"-{self.peer}" if self.peer is not None else "")
        return f"{self.kind}:{who}:{self.round}:{self.point}" + (f":{self.seconds:g}" if self.seconds is not None else "")


_FORM = re.compile(r"(?P<kind>[a-z]+):(?P<who>ps|\d+(-\d+)?):(?P<round>\d+):(?P<point>[a-z0-9-]+)(:(?P<seconds>[0-9.]+))?")


def _fault(value: Any) -> Any:
    """A fault from its text; raises ValueError for one that cannot strike."""
    if isinstance(value, str):
        if (match := _FORM.fullmatch(value)) is None:
            raise ValueError("a fault is written KIND:WHO:ROUND:POINT[:SECONDS], as in kill:2:3:before-training")
        node, _, peer = match["who"].partition("-")
        value = {"kind": match["kind"], "round": match["round"], "point": match["point"]}
        value |= {} if node == "ps" else {"node": node}
        value |= {"peer": peer} if peer else {}
        value |= {"seconds": match["seconds"]} if match["seconds"] else {}
    fault = Fault.model_validate(value)
    side = "ps" if fault.node is None else "node"
    place = fault.point.partition("-")[2]
    if side == "ps" and (fault.kind not in AT_SERVER or place in ("join", "training")):
        raise ValueError(f"{fault}: the PS has the kinds {', '.join(AT_SERVER)}, and the points slot-N, decode, checkpoint")
    if side == "node" and place in ("decode", "checkpoint"):
        raise ValueError(f"{fault}: a node has the points join, training and slot-N")
    if (fault.kind == "cut") != (fault.peer is not None):
        raise ValueError(f"{fault}: cut, and only cut, is between two nodes, as in cut:2-3:5:before-slot-1:10")
    if (fault.round == 0) != (place == "join"):
        raise ValueError(f"{fault}: round 0 is for the points before-join and after-join, and only for these")
    return fault


AnyFault = Annotated[Fault, BeforeValidator(_fault)]


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """Faults from their texts. Raises ConfigError."""
    try:
        return tuple(_fault(text) for text in texts)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def faults_in(log: Path | None) -> list[str]:
    """The faults that have struck, in the order of a file of them."""
    return [json.loads(line)["fault"] for line in log.read_text().splitlines()] if log and log.exists() else []


class Injected(Exception):
    """An error that was asked for by a fault."""


class FaultInjector:
    """The faults of one process: says which are due, and does what any process can do to itself."""

    def __init__(self, faults: Iterable[Fault], log: Path | None) -> None:
        """`log`: the file that gets a line for each fault that strikes; none strikes twice, whatever starts again."""
        struck = faults_in(log)
        self._waiting = [fault for fault in faults if str(fault) not in struck]
        self._log = log

    def strike(self, point: str, round: int) -> list[Fault]:
        """Carry out the faults that are due here, and return those that only the caller can carry out.

        Raises Injected for an exception.
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
                raise Injected(f"asked for by the fault {fault}")
        return [fault for fault in due if fault.kind not in ("kill", "stop")]

    def _record(self, fault: Fault) -> None:
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(json.dumps({"fault": str(fault), **fault.model_dump(exclude_none=True)}) + "\n")


def seconds_of(fault: Fault) -> float:
    """How long a fault lasts (s)."""
    return fault.seconds if fault.seconds is not None else DEFAULT_SECONDS[fault.kind]


def _stop(seconds: float) -> None:
    """Stop this process; a child of it, which is not stopped, lets it go on, or ends with it."""
    pid, steps = os.getpid(), round(seconds / WAKER_SECONDS)
    quiet = "exec </dev/null >/dev/null 2>&1"
    wait = f"{quiet}; for _ in $(seq {steps}); do kill -0 {pid} || exit; sleep {WAKER_SECONDS}; done; kill -CONT {pid}"
    subprocess.Popen(["/bin/sh", "-c", wait], start_new_session=True)
    os.kill(pid, signal.SIGSTOP)
