"""One run of a sweep over sockets."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dncfl.common.fault_injection import FaultInjector
from dncfl.common.limits import ensure_files, files_of_launcher
from dncfl.common.running import run_until_signal
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.launch.local import LocalNodes
from dncfl.launch.serving import serve_nodes
from dncfl.launch.sweep.kept_model import KeptModel
from dncfl.launch.sweep.standing import Standing
from dncfl.server.files import FAULTS
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord


def run_over_sockets(standing: Standing) -> None:
    """What is left of a run whose PS is in this process and whose nodes are others, which end with it, however it ends.

    Signals are left to the worker. Raises what ends a run early.
    """
    config = standing.run.config
    ensure_files(files_of_launcher(config.clients), f"a run of {config.clients} nodes")

    def record_round(record: RoundRecord, _: Sequence[AttemptTrace], __: Vector) -> None:
        standing.records.append(record)

    model = KeptModel(standing)
    if model.rounds_done == config.rounds:
        return
    nodes = LocalNodes(config, "error")
    with TemporaryDirectory() as folder:
        fault_log = Path(folder) / FAULTS
        faults = FaultInjector([fault for fault in config.faults if fault.node is None], fault_log)
        server = ServerProcess(config, model, record_round, Observer(), faults=faults)
        run_until_signal(serve_nodes(server, nodes, fault_log), signals=())
