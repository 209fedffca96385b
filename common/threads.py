"""Long vectors on several threads, for work that runs without Python's lock.

As many threads as numba is set to, by NUMBA_NUM_THREADS or the number of processors; a node of a local run has one.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from numba.core import config

K = TypeVar("K")
T = TypeVar("T")

SYMBOLS_PER_THREAD = 2**18
"""Work on fewer symbols is not worth a thread of its own."""


def in_parts(work: Callable[[int, int], T], d: int, num_threads: int | None = None) -> list[T]:
    """The results of work(first, last) on parts of d columns; one part where they are few."""
    num_parts = max(1, min(num_threads or threads_available(), d // SYMBOLS_PER_THREAD))
    edges = [d * i // num_parts for i in range(num_parts + 1)]
    if num_parts == 1:
        return [work(0, d)]
    with ThreadPoolExecutor(num_parts) as threads:
        return list(threads.map(work, edges[:-1], edges[1:]))


def each(work: Callable[[K], T], items: Iterable[K], num_symbols: int | None = None) -> list[T]:
    """The results of work on each item, in order; items of few symbols are not worth a thread."""
    if threads_available() == 1 or (num_symbols is not None and num_symbols < SYMBOLS_PER_THREAD):
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads_available()) as threads:
        return list(threads.map(work, items))


def threads_available() -> int:
    """How many threads work may be spread over."""
    number: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba is imported
    return number
