"""The node process: one life after the other, as long as the PS wants it."""

import logging

from dncfl.common.config import Config
from dncfl.node.life import Forgotten, Life
from dncfl.node.settings import NodeSettings
from dncfl.node.trainer import MakeTrainer, Trainer, local_trainer

log = logging.getLogger(__name__)


class NodeProcess:
    """One node, from its first joining to the end of the run."""

    def __init__(self, settings: NodeSettings, make_trainer: MakeTrainer = local_trainer) -> None:
        """`make_trainer` runs in a thread, once the run's configuration is known."""
        self._settings = settings
        self._make_trainer = make_trainer
        self._made: tuple[Config, Trainer] | None = None

    async def run(self) -> None:
        """Take part until the PS says that the run is over; join anew when the PS has forgotten this node.

        So it is after a restart of the PS, or after a silence of this node's that was too long.
        Raises NetworkError when the PS does not answer or refuses, AccessDenied when it and this node do not accept each
        other's keys, ConfigError when this node would listen to strangers, RunStopped when the PS ends the run early, and
        whatever else ends this node, after telling the PS.
        """
        while True:
            try:
                return await Life(self._settings, self._trainer).run()
            except Forgotten:
                log.info("node %d joins anew", self._settings.node)

    def _trainer(self, config: Config, node: int) -> Trainer:
        """The trainer for a configuration, the same in every life that it does not change in."""
        if self._made is None or self._made[0] != config:
            self._made = (config, self._make_trainer(config, node))
        return self._made[1]
