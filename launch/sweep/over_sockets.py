"""One run of a sweep over sockets."""

from collections.abc import Sequence

from dncfl.common.config import Config
from dncfl.common.faults import FaultInjector
from dncfl.common.limits import ensure_files, files_of_launcher
from dncfl.common.running import run_until_signal
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.launch.local import LocalNodes
from dncfl.launch.serving import serve_nodes
from dncfl.server.global_model import GlobalModel
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord


def records_over_sockets(config: Config) -> list[RoundRecord]:
    """The rounds of a run whose PS is in this process and whose nodes are others, which end with it, however it ends.

    Signals are left to the worker. Raises what ends a run early.
    """
    ensure_files(files_of_launcher(config.clients), f"a run of {config.clients} nodes")
    records: list[RoundRecord] = []

    def record_round(record: RoundRecord, _: Sequence[AttemptTrace], __: Vector) -> None:
        records.append(record)

    nodes = LocalNodes(config, "error")
    faults = FaultInjector([fault for fault in config.faults if fault.node is None], None)
    server = ServerProcess(config, GlobalModel(config), record_round, Observer(), faults=faults)
    run_until_signal(serve_nodes(server, nodes), signals=())
    return records
