"""The thread in which a node loads its data, trains and encodes, and what the PS is told of it meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from dncfl.common.tasks.training import TrainingStopped

T = TypeVar("T")


class Worker:
    """One thread, from entering to leaving it as a context, which ends training at its next step and waits for that."""

    def __init__(self) -> None:
        self.busy = False
        """whether it works"""
        self.progress = 0
        """steps of training so far"""
        self.newest_round = 0
        """training for an earlier one is given up"""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="train")
        self._leaving = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leaving.set()
        self._thread.shutdown()

    @property
    def leaving(self) -> bool:
        """Whether the node leaves."""
        return self._leaving.is_set()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function that blocks."""
        self.busy = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        finally:
            self.busy = False

    def step(self, round: int) -> None:
        """A step of training for a round begins, in the thread. Raises TrainingStopped when it is not wanted any more."""
        self.progress += 1
        if self.leaving or self.newest_round > round:
            raise TrainingStopped
