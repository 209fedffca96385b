"""Flower's simulation with as many clients that do nothing: what a round costs there, without training."""

import logging
from time import perf_counter
from typing import Any

import numpy as np


def flower_rounds(num_clients: int, num_parameters: int, num_rounds: int) -> list[float]:
    """The seconds from each round's aggregation to the next one's. Raises ImportError where flwr is not installed."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    ends: list[float] = []

    class Idle(NumPyClient):
        def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
            return parameters, 1, {}

    class Timed(FedAvg):
        def aggregate_fit(self, *arguments: Any, **named: Any) -> Any:
            result = super().aggregate_fit(*arguments, **named)
            ends.append(perf_counter())
            return result

    def components(_: Context) -> ServerAppComponents:
        strategy = Timed(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=num_clients,
            min_available_clients=num_clients,
            initial_parameters=ndarrays_to_parameters([np.zeros(num_parameters, dtype=np.float32)]),
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=num_rounds))

    run_simulation(
        ServerApp(server_fn=components),
        ClientApp(client_fn=lambda _: Idle().to_client()),
        num_supernodes=num_clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return np.diff(ends).tolist()
