"""One command that trains: from its configuration to its run folder, its picture and its summary."""

import importlib.metadata
import platform
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from dncfl.common.config import Config
from dncfl.common.errors import ConfigError, StorageError
from dncfl.common.running import Interrupted, uninterrupted
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.launch.display import Display
from dncfl.server.files import CONFIG
from dncfl.server.global_model import GlobalModel
from dncfl.server.records import RoundRecord, summarise
from dncfl.server.run_folder import Checkpoint, RunFolder

RECORDED_VERSIONS = ("dncfl", "torch", "numpy", "numba", "pyzmq", "msgpack")


class Session:
    """The model, the folder and the records of one run, kept together whatever ends it."""

    def __init__(self, command: str, config: Config, display: Display, resumed: Path | None = None) -> None:
        """A new run, or one that goes on in the folder `resumed`.

        Raises DataError, ConfigError or StorageError when the run cannot start.
        """
        self.config = config
        self.display = display
        self.model = GlobalModel(config)
        if self.model.has_buffers and config.bound != "per-tensor":
            buffers = (
                f"the model {config.model} has floating-point buffers, as of batch norm, which may change by far more than"
            )
            display.warning(f"{buffers} weights: --bound {config.bound} then spoils the one or the other, per-tensor neither")
        self.records: list[RoundRecord] = []
        self._resumed = resumed is not None
        if resumed is None:
            self.folder = RunFolder.create(config)
        else:
            self.folder, checkpoint = RunFolder.reopen(resumed)
            try:
                self._go_on_from(checkpoint)
            except BaseException:
                self.folder.close()
                raise
        self.counts: dict[str, int] = {}
        self._command = command
        self._started = perf_counter()

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        done = checkpoint.rounds_done
        theta = checkpoint.theta
        if theta is not None and theta.size != self.model.num_parameters:
            raise StorageError(f"{self.folder.path} holds a model of {theta.size} values, its {CONFIG} tells of another")
        if done > self.config.rounds:
            raise ConfigError(f"rounds = {self.config.rounds}: {done} are done in {self.folder.path} already; ask for more")
        if done == self.config.rounds and self.folder.is_complete:
            raise ConfigError(f"all {done} rounds in {self.folder.path} are done; --rounds takes the run further")
        self.folder.go_on(self.config, done)
        if theta is not None:
            self.model.theta, self.model.rounds_done = theta, done
        self.records = checkpoint.records
        self.display.announce(f"going on after round {done} of {self.config.rounds}")

    def add_round(self, record: RoundRecord, attempts: Sequence[AttemptTrace]) -> None:
        """Store a round. Raises StorageError."""
        self.folder.add_round(record, attempts)
        self.records.append(record)

    def add_round_and_checkpoint(self, record: RoundRecord, attempts: Sequence[AttemptTrace], theta: Vector) -> None:
        """Store a round so that the run can go on after it. Raises StorageError."""
        self.folder.add_round(record, attempts)
        self.folder.checkpoint(theta, record.round)
        self.records.append(record)

    def carry_out(self, work: Callable[[], object]) -> dict[str, Any]:
        """Do the work and return the summary.

        When the work fails or is interrupted, the folder is completed with the rounds that are done; one without any is
        removed.
        """
        try:
            if self.model.rounds_done < self.config.rounds:  # a run may have ended between its last round and its summary
                self._do(work)
            with uninterrupted():  # all rounds are done: a second later the folder is complete
                return self._finish(None)
        finally:
            self.folder.close()

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (Exception, Interrupted) as error:
            if self.records:
                self._keep(str(error) or type(error).__name__)
            elif not self._resumed:
                self.folder.discard()
            raise

    def _keep(self, stopped_by: str) -> None:
        """Complete the folder of a run that ends early; what fails here must not hide why it ends."""
        try:
            self._finish(stopped_by)
        except Exception as error:
            self.display.warning(str(error) or type(error).__name__)
            if not self.folder.can_go_on:
                return
        again = f"; {self._how_to_go_on()}" if self.folder.can_go_on else ""
        rounds = "round is" if len(self.records) == 1 else "rounds are"
        self.display.announce(f"{len(self.records)} finished {rounds} in {self.folder.path}{again}")

    def _how_to_go_on(self) -> str:
        by_hand = " with the same --bind, --keys and --downlink-port, and start the nodes again"
        again = f"dncfl {self._command} --resume {shlex.quote(str(self.folder.path))}"
        return f"go on with: {again}{by_hand if self._command == 'server' else ''}"

    def _finish(self, stopped_by: str | None) -> dict[str, Any]:
        config = self.config
        summary: dict[str, Any] = {
            "command": self._command,
            "completed": stopped_by is None,
            "stopped_by": stopped_by,
            "folder": str(self.folder.path),
            "method": config.method,
            "clients": config.clients,
            "rounds": config.rounds,
            "dataset": config.dataset,
            "partition": config.partition,
            "seed": config.seed,
            **summarise(self.records, config.clients),
            "model_sha256": self.model.sha256,
            "num_parameters": self.model.num_parameters,
            "seconds": round(perf_counter() - self._started, 3),
            **self.counts,
            "median_round_seconds": _median_seconds(self.records),
            "versions": {"python": platform.python_version()}
            | {name: importlib.metadata.version(name) for name in RECORDED_VERSIONS},
        }
        self.folder.finish(self.model.tensors(), summary)
        if self.records:
            from dncfl.launch.picture import draw_run  # slow to import, and needed only now

            title = f"{config.method}: {config.clients} nodes on {config.dataset}, {config.partition}, {_links(config)}"
            draw_run(self.folder.path, self.records, title)
        return summary


def _links(config: Config) -> str:
    """The links of a run in a few words."""
    if config.method_traits.perfect_links or config.channel == "perfect":
        return "perfect links"
    if config.channel == "trace":
        return f"links of {config.trace}"
    if config.channel == "bernoulli":
        return f"outage {config.pe}" if isinstance(config.pe, float) else "an outage per link"
    if all(isinstance(value, float) for value in (config.snr, config.rate, config.sigma2)):
        return f"SNR {config.snr:g}, R {config.rate:g}"
    return "Rayleigh links, each its own"


def _median_seconds(records: list[RoundRecord]) -> dict[str, float]:
    if not records:
        return {}
    return {phase: round(median(record.seconds[phase] for record in records), 6) for phase in records[0].seconds}
