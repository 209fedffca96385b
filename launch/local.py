"""The nodes of a local run: one process each, forked from a server that has imported torch once.

Node processes watch the launcher: when it is gone, however it went, they leave too.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from dncfl.common.config import Config
from dncfl.common.errors import DncflError
from dncfl.common.fault_injection import faults_in
from dncfl.common.faults import Fault
from dncfl.common.log import log_to_stderr
from dncfl.common.running import Interrupted, run_until_signal
from dncfl.node.settings import NodeSettings

if TYPE_CHECKING:
    from dncfl.node.trainer import MakeTrainer

log = logging.getLogger(__name__)

GRACE_SECONDS = 3.0
"""How long nodes may take to leave before they are killed."""

REASON_SECONDS = 1.0
"""How long the PS may take to hear from a failed node itself why it failed."""

PRELOADED = ("dncfl.launch.cli", "dncfl.node.process")
"""What every node imports."""

FROZEN = "dncfl.launch.frozen"
"""What a server that others are forked from imports last."""

HEAVY = ("torchvision.datasets", "sklearn.datasets")
"""What loading data may import, for a second or more: once, in place of once at each node, where it has been imported here."""

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class LocalNodes:
    """The node processes of one run."""

    def __init__(self, config: Config, log_level: str, make_trainer: "MakeTrainer | None" = None) -> None:
        """Start the server that nodes are forked from; it imports what they need while the caller goes on.

        `make_trainer`: a function of a module, in place of training.
        """
        self._config = config
        self._log_level = log_level
        self._make_trainer = make_trainer
        self._context = multiprocessing.get_context("forkserver")
        self._processes: list[ForkServerProcess] = []
        self._settings: list[NodeSettings] = []
        self._answered: set[Fault] = set()
        imported = {"torchvision.datasets"} if config.dataset == "mnist" else sys.modules.keys()
        for_data = [name for name in HEAVY if name in imported]
        self._context.set_forkserver_preload([*PRELOADED, *for_data, FROZEN])
        with one_thread_each(), ignoring_interrupts():
            ensure_running()

    def start(self, host: str, port: int, fault_log: Path | None = None) -> None:
        """Start all nodes; they join the PS at host:port, and note the faults that strike them in `fault_log`."""
        for node in range(self._config.clients):
            faults = tuple(fault for fault in self._config.faults if fault.node == node)
            settings = NodeSettings(
                node=node,
                server_host=host,
                server_port=port,
                model=self._config.model,
                dataset=self._config.dataset,
                faults=faults,
                fault_log=fault_log,
            )
            self._settings.append(settings)
            self._answered.update(_kills(settings))  # those of before a resumed run
            self._processes.append(self._start(settings))

    def _start(self, settings: NodeSettings) -> ForkServerProcess:
        process = self._context.Process(
            target=_run_node, args=(settings, self._log_level, self._make_trainer), name=f"dncfl-node-{settings.node}"
        )
        process.start()
        return process

    async def watch(self, tell: Callable[..., None]) -> None:
        """Tell when a node process ends by an error while the run goes on: its number, how, and whether it stays away.

        A node that a fault kills for a time is started again.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Queue[int] = asyncio.Queue()

        def listen(node: int) -> None:
            loop.add_reader(self._processes[node].sentinel, end, node)

        def end(node: int) -> None:
            loop.remove_reader(self._processes[node].sentinel)
            ended.put_nowait(node)

        def start_again(node: int) -> None:
            self._processes[node].close()
            self._processes[node] = self._start(self._settings[node])
            listen(node)

        for node in range(len(self._processes)):
            listen(node)
        waiting: list[asyncio.TimerHandle] = []
        try:
            while True:
                node = await ended.get()
                process = self._processes[node]
                process.join()
                how = f"it {_how(process.exitcode or 0)}"
                killed_by = [fault for fault in _kills(self._settings[node]) if fault not in self._answered]
                self._answered.update(killed_by)
                if killed_by and killed_by[0].seconds is not None and process.exitcode == -signal.SIGKILL:
                    tell(node, how, for_good=False)
                    waiting.append(loop.call_later(killed_by[0].seconds, start_again, node))
                elif process.exitcode:
                    if process.exitcode > 0:  # it has told the PS why, which is the better reason
                        await asyncio.sleep(REASON_SECONDS)
                    tell(node, how, for_good=True)
        finally:
            for handle in waiting:
                handle.cancel()
            for process in self._processes:
                loop.remove_reader(process.sentinel)

    def terminate(self) -> None:
        """Ask all nodes to leave at once."""
        for process in self._processes:
            process.terminate()
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGCONT)  # or one that is stopped could not

    def stop(self) -> None:
        """Let the nodes leave, and kill those that have not after a grace period."""
        deadline = monotonic() + GRACE_SECONDS
        for process in self._processes:
            process.join(max(0.0, deadline - monotonic()))
            if process.is_alive():
                log.warning("%s did not leave within %g s and is killed", process.name, GRACE_SECONDS)
                process.kill()
                process.join()
            process.close()
        self._processes, self._settings = [], []


def _kills(settings: NodeSettings) -> list[Fault]:
    """The faults that have killed a node so far."""
    struck = faults_in(settings.fault_log)
    return [fault for fault in settings.faults if fault.kind == "kill" and str(fault) in struck]


def _how(exit_code: int) -> str:
    return f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Node processes inherit settings for one thread each: many nodes with a thread per core slow each other down."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """What is started here ignores Ctrl-C, which a terminal sends to the whole group: the launcher tells it when to stop."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_node(settings: NodeSettings, log_level: str, make_trainer: "MakeTrainer | None") -> None:
    """The whole life of a node process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log_to_stderr(log_level)
    try:
        run_until_signal(_until_launcher_ends(settings, make_trainer), [signal.SIGTERM])
    except Interrupted as interrupt:
        sys.exit(interrupt.exit_code)
    except asyncio.CancelledError:
        sys.exit(1)  # the launcher is gone
    except DncflError as error:
        sys.exit(error.exit_code)  # the PS has been told, and tells the user
    except Exception:
        sys.exit(1)


async def _until_launcher_ends(settings: NodeSettings, make_trainer: "MakeTrainer | None") -> None:
    from dncfl.node.process import NodeProcess  # imports torch, which the launcher does while its fork server does too
    from dncfl.node.trainer import local_trainer

    parent = multiprocessing.parent_process()
    assert parent is not None
    task = asyncio.ensure_future(NodeProcess(settings, make_trainer or local_trainer).run())
    loop = asyncio.get_running_loop()
    loop.add_reader(parent.sentinel, task.cancel)
    try:
        await task
    finally:
        loop.remove_reader(parent.sentinel)
