"""Commands with a PS: over nodes on this machine, or over nodes that are started by hand."""

from pathlib import Path
from typing import Any

from rich.console import Console

from dncfl.common.config import Config
from dncfl.common.errors import ConfigError
from dncfl.common.fault_injection import FaultInjector, faults_in
from dncfl.common.limits import ensure_files, files_of_launcher, files_of_server
from dncfl.common.running import run_beside, run_until_signal
from dncfl.common.security import NO_KEYS, Security
from dncfl.launch.display import Display
from dncfl.launch.local import LocalNodes
from dncfl.launch.session import Session
from dncfl.server.files import FAULTS
from dncfl.server.process import ServerProcess

LOOPBACK = "127.0.0.1"


def serve_locally(config: Config, nodes: LocalNodes, resumed: Path | None = None) -> dict[str, Any]:
    """A whole run on this machine, or the rest of one; returns its summary."""
    ensure_files(files_of_launcher(config.clients), f"a run of {config.clients} nodes")
    with Display(config, Console(stderr=True)) as display:
        session = Session("run", config, display, resumed)

        async def work() -> None:
            server = _server(config, session, display)
            display.now("starting nodes")
            try:
                await serve_nodes(server, nodes, session.folder.path / FAULTS)
            finally:
                session.counts = server.counts

        summary = session.carry_out(lambda: run_until_signal(work()))
        _warn_of_faults_to_come(session)
        return summary


def _warn_of_faults_to_come(session: Session) -> None:
    """A fault at a point that never came makes no test."""
    struck = faults_in(session.folder.path / FAULTS)
    if missing := [str(fault) for fault in session.config.faults if str(fault) not in struck]:
        session.display.warning(f"faults that have not struck: {', '.join(missing)}")


def _server(config: Config, session: Session, display: Display, security: Security = NO_KEYS) -> ServerProcess:
    faults = FaultInjector([fault for fault in config.faults if fault.node is None], session.folder.path / FAULTS)
    return ServerProcess(config, session.model, session.add_round_and_checkpoint, display, security, faults)


async def serve_nodes(server: ServerProcess, nodes: LocalNodes, fault_log: Path | None = None) -> None:
    """A PS and its nodes on this machine, from the first socket to the last process."""
    with server.listening(LOOPBACK) as port:
        try:
            nodes.start(LOOPBACK, port, fault_log)
            await run_beside(server.serve(), nodes.watch(server.node_ended))
        except BaseException:
            nodes.terminate()  # some may not have joined, and hear nothing from the PS
            raise
        finally:
            nodes.stop()


def serve_by_hand(
    config: Config, host: str, port: int, downlink_port: int | None, security: Security, resumed: Path | None = None
) -> dict[str, Any]:
    """A PS at host:port; returns the summary of the run. Raises ConfigError for faults at nodes, which it does not start."""
    if at_nodes := [fault for fault in config.faults if fault.node is not None]:
        command = f"dncfl node {at_nodes[0].node} --fault {at_nodes[0]}"
        raise ConfigError(f"faults: {at_nodes[0]} strikes at a node, which must be told where it is started: {command}")
    ensure_files(files_of_server(config.clients), f"a PS of {config.clients} nodes")
    with Display(config, Console(stderr=True), tells_who_joins=True) as display:
        session = Session("server", config, display, resumed)

        async def work() -> None:
            server = _server(config, session, display, security)
            with server.listening(host, port, downlink_port) as bound:
                own = "".join(f" --{what} {name}" for what, name in config.own_code.items())
                keys = " --keys FOLDER" if security.uses_keys else ""
                command = f"dncfl node NUMBER --server {host}:{bound}{own}{keys}"
                display.announce(f"nodes join by: {command}   (NUMBER 0..{config.clients - 1})")
                try:
                    await server.serve()
                finally:
                    session.counts = server.counts

        summary = session.carry_out(lambda: run_until_signal(work()))
        _warn_of_faults_to_come(session)
        return summary
