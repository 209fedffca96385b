"""Jobs on the cores of this machine, each worker a process of its own.

Each worker is a pool of one process, so that it is known whose job a worker had that was killed, and no other job suffers.
All workers hold one end of a pipe, the lifeline; when the other end is closed, as it is also by the death of this process,
they leave at once.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running

from dncfl.launch.local import FROZEN, ignoring_interrupts, one_thread_each
from dncfl.launch.sweep.jobs import LOOK_SECONDS, Job, Result, compute, failed

PRELOADED = ("dncfl.launch.reference", "dncfl.server.global_model", FROZEN)
LOST = "its worker process ended without a word: it was killed, perhaps for want of memory"


class Cores:
    """So many workers on this machine."""

    is_here = True

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._context = multiprocessing.get_context("forkserver")

    def results(self, jobs: Sequence[Job]) -> Generator[list[Result], None, None]:
        self._context.set_forkserver_preload(list(PRELOADED))
        with one_thread_each(), ignoring_interrupts():
            ensure_running()
        waiting = deque(jobs)
        theirs, lifeline = self._context.Pipe(duplex=False)
        idle = [self._worker(theirs) for _ in range(min(self.num_workers, len(waiting)))]
        busy: dict[Future[list[Result]], tuple[Job, ProcessPoolExecutor]] = {}
        workers = set(idle)
        try:
            while waiting or busy:
                while waiting and idle:
                    job, worker = waiting.popleft(), idle.pop()
                    busy[worker.submit(compute, job)] = job, worker
                ended = wait(busy, LOOK_SECONDS, FIRST_COMPLETED).done
                if not ended:
                    yield []
                for future in ended:
                    job, worker = busy.pop(future)
                    try:
                        results = future.result()
                    except BrokenProcessPool:
                        worker.shutdown()
                        worker, results = self._worker(theirs), failed(job, LOST)
                        workers.add(worker)
                    idle.append(worker)
                    yield results
        finally:
            lifeline.close()
            for worker in workers:
                worker.shutdown(cancel_futures=True)
            theirs.close()

    def _worker(self, lifeline: Connection) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, self._context, initializer=_begin, initargs=(lifeline,))


def _begin(lifeline: Connection) -> None:
    """What a worker does first: Ctrl-C is for the process that has the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with, args=(lifeline,), daemon=True).start()


def _leave_with(lifeline: Connection) -> None:
    lifeline.poll(None)
    os._exit(0)
