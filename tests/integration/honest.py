"""An honest run in this process that waits for the harm that is done to it, so that each phase of a round meets its share."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from dncfl.common.config import Config
from dncfl.common.scheme import channel
from dncfl.common.tasks.model import Vector
from dncfl.launch.reference import reference_rounds, simulated
from dncfl.node.process import NodeProcess
from dncfl.node.settings import NodeSettings
from dncfl.node.trainer import LocalUpdate, Trainer, local_trainer
from dncfl.server.global_model import GlobalModel
from tests.integration.models import LINEAR
from tests.integration.test_in_process import Run

HONEST: dict[str, object] = {"clients": 3, "rounds": 5, "local_epochs": 1, "pe": 0.3, "min_nodes": 3, "model": LINEAR}
LOOPBACK = "127.0.0.1"
MB = 2**20


class Gates:
    """Places where a run waits, each until a further share of some work is done."""

    def __init__(self, number: int, work: int) -> None:
        self._work = work
        self._due = [work * (i + 1) // number for i in range(number)]
        self._done = 0
        self._changed = threading.Condition()

    def wait(self) -> None:
        with self._changed:
            due = self._due.pop(0)
            self._changed.wait_for(lambda: self._done >= due)

    def open_up_to(self, done: int) -> None:
        with self._changed:
            self._done = done
            self._changed.notify_all()

    def open_all(self) -> None:
        self.open_up_to(self._work)


@dataclass
class GatedTrainer:
    """Waits at a gate before it trains."""

    trainer: Trainer
    gates: Gates
    begin: Callable[[], None]

    @property
    def tensor_sizes(self) -> tuple[int, ...]:
        return self.trainer.tensor_sizes

    def update(self, theta: Vector, round: int, before_step: Callable[[], None] = lambda: None) -> LocalUpdate:
        self.begin()
        self.gates.wait()
        return self.trainer.update(theta, round, before_step)


class HonestRun:
    """A PS and its nodes in this process, with gates where node 0 trains and where the PS records."""

    def __init__(self, config: Config, work: int) -> None:
        """`work`: what is to be done to it, in whatever unit."""
        self.config = config
        self.run = Run(config)
        self.gates = Gates(2 * config.rounds, work)
        self.megabytes_grown = 0.0
        model, record = self.run.server._model, self.run.server._closer._record
        assert isinstance(model, GlobalModel)
        self.model = model

        def record_at_gate(*arguments: Any) -> None:
            self.gates.wait()
            record(*arguments)

        self.run.server._closer._record = record_at_gate

    async def beside(self, harm: Callable[[int], Awaitable[None]]) -> None:
        """The whole run, and from its first training on the harm, which gets the port of the PS."""
        loop, begun, process = asyncio.get_running_loop(), asyncio.Event(), psutil.Process()

        def trainer(config: Config, node: int) -> Trainer:
            inner = local_trainer(config, node)
            return GatedTrainer(inner, self.gates, lambda: _soon(loop, begun)) if node == 0 else inner

        async def do_harm(port: int) -> None:
            await begun.wait()
            before = process.memory_info().rss
            try:
                await harm(port)
            finally:
                self.gates.open_all()  # whatever happens, nobody waits for ever
                self.megabytes_grown = (process.memory_info().rss - before) / MB

        with self.run.server.listening(LOOPBACK) as port:
            settings = [
                NodeSettings(node=m, server_host=LOOPBACK, server_port=port, model=LINEAR) for m in range(self.config.clients)
            ]
            async with asyncio.TaskGroup() as tasks:
                for work in (self.run.server.serve(), do_harm(port), *(NodeProcess(each, trainer).run() for each in settings)):
                    tasks.create_task(work)

    @property
    def num_lost(self) -> int:
        return sum(record.transmissions["lost"] for record in self.run.records)

    def is_as_the_reference(self) -> bool:
        """Whether model and trace are those of a run in a straight line."""
        model, links = GlobalModel(self.config), channel(self.config)
        rounds = list(reference_rounds(self.config, model, partial(simulated, self.config, links)))
        return model.sha256 == self.model.sha256 and self.run.traces == [trace for _, traces in rounds for trace in traces]


def _soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)
