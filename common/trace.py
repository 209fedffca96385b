"""The trace of a run: what became of every transmission on every link, attempt by attempt.

It is written as JSON lines, one an attempt, and can be played back as a channel.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from dncfl.common.channel import Channel, Flags, Outcome
from dncfl.common.errors import DataError
from dncfl.common.words import rule_in_words

NOT_LISTENED = "-"
"""The letter of a link that nobody listens on: a node's own, and all links between nodes where no one relays."""

Letters = Annotated[str, StringConstraints(pattern=r"^[del-]*$")]


class AttemptTrace(BaseModel):
    """The links of one attempt: d = delivered, e = erased by the channel, l = lost on the way, - = not listened on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int = Field(ge=1, description="round, from 1")
    attempt: int = Field(ge=1, description="attempt within the round, from 1")
    slot1: tuple[Letters, ...] = Field(description="a string per sender; letter k is the link to node k, the last to the PS")
    relay: tuple[Letters, ...] = Field(description="a string per sender; letter j is the codeword of slot j + 2 to the PS")

    refused: tuple[int, ...] = Field(
        default=(),
        description="in a round's last attempt: nodes whose messages would follow, but cannot be trusted",
    )

    @property
    def relay_slots(self) -> int:
        """How many relay slots were used."""
        return len(self.relay[0])


def letters(outcomes: Iterable[Outcome | None]) -> str:
    """Outcomes as the letters of a trace; None is a link that nobody listens on."""
    return "".join(NOT_LISTENED if outcome is None else outcome.value for outcome in outcomes)


def read_trace(path: Path) -> list[AttemptTrace]:
    """The attempts in a trace file. Raises DataError when it is missing or malformed."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise DataError(f"the trace {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a trace of dncfl: {error}") from error
    return [_attempt(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _attempt(path: Path, number: int, line: str) -> AttemptTrace:
    try:
        return AttemptTrace.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        reason = error.msg
    except pydantic.ValidationError as error:
        detail = error.errors()[0]
        reason = " ".join(map(str, (*detail["loc"], rule_in_words(detail))))
    raise DataError(f"{path} is not a trace of dncfl: line {number}: {reason}")


class TraceChannel(Channel):
    """Links that repeat a recorded trace: delivered then, delivered now; anything else does not arrive."""

    def __init__(self, attempts: Iterable[AttemptTrace], num_clients: int) -> None:
        """Raises DataError for a trace of another number of nodes."""
        self._attempts = {(trace.round, trace.attempt): trace for trace in attempts}
        for trace in self._attempts.values():
            if {len(trace.slot1), len(trace.relay), *(len(links) - 1 for links in trace.slot1)} != {num_clients}:
                raise DataError(f"the trace is of {len(trace.slot1)} nodes in round {trace.round}: the run has {num_clients}")
        self._num_clients = num_clients

    def delivers(self, *, round: int, attempt: int, slot: int, receiver: int) -> Flags:
        """Raises DataError when the trace has no such transmission."""
        where = f"round {round}, attempt {attempt}, slot {slot}"
        trace = self._attempts.get((round, attempt))
        try:
            if trace is None:
                raise IndexError
            strings = trace.slot1 if slot == 1 else trace.relay
            column = receiver if slot == 1 else slot - 2
            seen = [strings[sender][column] for sender in range(self._num_clients)]
        except IndexError:
            raise DataError(f"the trace holds nothing for {where}") from None
        if any(letter == NOT_LISTENED for sender, letter in enumerate(seen) if sender != receiver):
            raise DataError(f"the trace was recorded without listening to all links in {where}")
        flags = np.array([letter == Outcome.DELIVERED.value for letter in seen])
        if receiver < self._num_clients:
            flags[receiver] = True
        return flags
