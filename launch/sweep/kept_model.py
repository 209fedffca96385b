"""θ of a run of a sweep, which goes on where the run stopped."""

from dncfl.common.tasks.data import Samples
from dncfl.launch.sweep.standing import Standing
from dncfl.server.global_model import GlobalModel, Step


class KeptModel(GlobalModel):
    """A global model that is kept with the records of its run after each round."""

    def __init__(self, standing: Standing, test: Samples | None = None) -> None:
        """As a global model; a run that stopped with another number of parameters, of a model since changed, starts anew."""
        super().__init__(standing.run.config, test)
        self._standing = standing
        if standing.theta is not None and standing.theta.shape != self.theta.shape:
            standing.start_anew()
        if standing.theta is not None:
            self.theta, self.rounds_done = standing.theta, len(standing.records)

    def take(self, step: Step, round: int) -> None:
        """Make the step of a round, which is recorded already. Raises StorageError."""
        super().take(step, round)
        self._standing.keep(self.theta)
