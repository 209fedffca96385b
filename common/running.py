"""How the processes run their coroutines: tasks with one owner, and an end by signal."""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, TypeVar

import uvloop  # an event loop with less overhead per frame

from dncfl.common.errors import NodeFailed

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The process was asked to stop by a signal. No handler of ordinary exceptions swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


async def run_beside(main: Awaitable[T], *helpers: Coroutine[Any, Any, None]) -> T:
    """The result of `main`, with helpers that run as long as it does. The first exception of any of them ends all."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(helper) for helper in helpers]
            result = await main
            for task in running:
                task.cancel()
        return result
    except BaseExceptionGroup as group:
        raise _first(group) from None


def run_until_signal(main: Coroutine[Any, Any, T], signals: Collection[int] = STOP_SIGNALS) -> T:
    """Run a coroutine on its own event loop; each of the signals cancels it and, once it has cleaned up, raises Interrupted.

    So it does if what is cancelled ends by NodeFailed meanwhile.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_cancelled_by_signal(main, signals))


def interrupted_by_signal() -> AbstractContextManager[None]:
    """Let SIGINT and SIGTERM raise Interrupted in the main thread, for work without an event loop."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Interrupted(number)

    return _handling(stop)


def gone_at_signal() -> AbstractContextManager[None]:
    """Let SIGINT and SIGTERM end the process at once, for imports: torch's C++ aborts when an exception crosses it."""

    def leave(number: int, _: FrameType | None) -> None:
        interrupt = Interrupted(number)
        os.write(2, f"dncfl: {interrupt}\n".encode())
        os._exit(interrupt.exit_code)

    return _handling(leave)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until what belongs together is done; where that fails, its error ends the work instead.

    Only in the main thread do signals interrupt anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    with _handling(lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


async def _cancelled_by_signal(main: Coroutine[Any, Any, T], signals: Collection[int]) -> T:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except (asyncio.CancelledError, NodeFailed):  # a signal to a whole group stops the nodes, too, and they may be first
        if received:
            raise Interrupted(received[0]) from None
        raise
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
