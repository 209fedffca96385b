"""The reference as a sequence of rounds that a signal may end."""

import signal
from collections import deque

import pytest

from dncfl.common.config import load_config
from dncfl.common.errors import ConfigError
from dncfl.common.running import Interrupted, interrupted_by_signal
from dncfl.launch.batched.engine import BatchedRun, batched_rounds
from dncfl.launch.reference import over_channel, reference_rounds
from dncfl.server.global_model import GlobalModel

CONFIG = load_config(None, {"clients": 3, "local_epochs": 1})


@pytest.mark.parametrize("engine", ["looped", "batched"])
def test_a_signal_waits_until_the_model_is_as_far_as_the_records(engine: str) -> None:
    model = GlobalModel(CONFIG)
    run = BatchedRun(config=CONFIG, model=model, communicate=over_channel(CONFIG))
    rounds = reference_rounds(CONFIG, model, over_channel(CONFIG)) if engine == "looped" else batched_rounds([run])
    recorded: list[object] = []

    def take(round: object) -> None:
        if recorded:
            signal.raise_signal(signal.SIGINT)
        recorded.append(round)

    with pytest.raises(Interrupted, match="SIGINT"), interrupted_by_signal():
        deque(map(take, rounds))
    assert model.rounds_done == len(recorded) == 2


def test_faults_are_refused_where_no_process_suffers_them() -> None:
    config = load_config(None, {"clients": 3, "faults": ["kill:2:1:before-training"]})
    with pytest.raises(ConfigError, match="kill:2:1:before-training strikes in a run over sockets only"):
        over_channel(config)
