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
    POINT      before- or after- and join, training, slot-1, slot-2, … at a node; slot-1, …, decode, checkpoint at the PS;
               after-slot-N is when ZeroMQ has been given the transmission, which a kill may still catch in there

How a process carries them out is in `dncfl.common.fault_injection`.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dncfl.common.errors import ConfigError
from dncfl.common.words import rule_in_words

Kind = Literal["kill", "stop", "slow", "exception", "delay", "corrupt", "lie", "duplicate", "replay", "cut"]
POINT = r"^(before|after)-(join|training|decode|checkpoint|slot-[1-9]\d{0,2})$"
POINT_IN_WORDS = "must be before- or after- and join, training, slot-N, decode or checkpoint"
DEFAULT_SECONDS = {"stop": 10.0, "delay": 1.0, "cut": 10.0}
AT_SERVER = ("kill", "stop", "delay", "exception")
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
    """A fault from its text or its table; raises ValueError for one that cannot strike."""
    if isinstance(value, str):
        if (match := _FORM.fullmatch(value)) is None:
            raise ValueError("a fault is written KIND:WHO:ROUND:POINT[:SECONDS], as in kill:2:3:before-training")
        node, _, peer = match["who"].partition("-")
        value = {"kind": match["kind"], "round": match["round"], "point": match["point"]}
        value |= {} if node == "ps" else {"node": node}
        value |= {"peer": peer} if peer else {}
        value |= {"seconds": match["seconds"]} if match["seconds"] else {}
    try:
        fault = Fault.model_validate(value)
    except ValidationError as error:
        detail = error.errors()[0]
        rule = POINT_IN_WORDS if detail["type"] == "string_pattern_mismatch" else rule_in_words(detail)
        raise ValueError(f"{detail['loc'][0]} {rule}") from None
    side = "ps" if fault.node is None else "node"
    place = fault.point.partition("-")[2]
    if side == "ps" and (fault.kind not in AT_SERVER or place in ("join", "training")):
        raise ValueError(f"the PS has the kinds {', '.join(AT_SERVER)}, and the points slot-N, decode, checkpoint")
    if side == "node" and place in ("decode", "checkpoint"):
        raise ValueError("a node has the points join, training and slot-N")
    if (fault.kind == "cut") != (fault.peer is not None) or (fault.kind == "cut" and fault.peer == fault.node):
        raise ValueError("cut, and only cut, is between two nodes, as in cut:2-3:5:before-slot-1:10")
    if (fault.round == 0) != (place == "join"):
        raise ValueError("round 0 is for the points before-join and after-join, and only for these")
    return fault


AnyFault = Annotated[Fault, BeforeValidator(_fault)]


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """Faults from their texts. Raises ConfigError."""
    faults = []
    for text in texts:
        try:
            faults.append(_fault(text))
        except ValueError as error:
            raise ConfigError(f"{text}: {error}") from None
    return tuple(faults)


def seconds_of(fault: Fault) -> float:
    """How long a fault lasts (s)."""
    return fault.seconds if fault.seconds is not None else DEFAULT_SECONDS[fault.kind]
