"""Commands with a PS: over nodes on this machine, or over nodes that are started by hand."""

from typing import Any

from rich.console import Console

from dncfl.common.config import Config
from dncfl.common.running import run_beside, run_until_signal
from dncfl.common.security import Security
from dncfl.launch.display import Display
from dncfl.launch.local import LocalNodes
from dncfl.launch.session import Session
from dncfl.server.process import ServerProcess

LOOPBACK = "127.0.0.1"


def serve_locally(config: Config, nodes: LocalNodes) -> dict[str, Any]:
    """A whole run on this machine; returns its summary."""
    with Display(config, Console(stderr=True)) as display:
        session = Session("run", config, display)

        async def work() -> None:
            server = ServerProcess(config, session.model, session.add_round, display)
            display.now("starting nodes")
            try:
                await serve_nodes(server, nodes)
            finally:
                session.counts = server.counts

        return session.carry_out(lambda: run_until_signal(work()))


async def serve_nodes(server: ServerProcess, nodes: LocalNodes) -> None:
    """A PS and its nodes on this machine, from the first socket to the last process."""
    with server.listening(LOOPBACK) as port:
        try:
            nodes.start(LOOPBACK, port)
            await run_beside(server.serve(), nodes.watch())
        except BaseException:
            nodes.terminate()  # some may not have joined, and hear nothing from the PS
            raise
        finally:
            nodes.stop()


def serve_by_hand(config: Config, host: str, port: int, downlink_port: int | None, security: Security) -> dict[str, Any]:
    """A PS at host:port; returns the summary of the run."""
    with Display(config, Console(stderr=True)) as display:
        session = Session("server", config, display)

        async def work() -> None:
            server = ServerProcess(config, session.model, session.add_round, display, security)
            with server.listening(host, port, downlink_port) as bound:
                keys = " --keys FOLDER" if security.uses_keys else ""
                command = f"dncfl node NUMBER --server {host}:{bound}{keys}"
                display.announce(f"nodes join by: {command}   (NUMBER 0..{config.clients - 1})")
                try:
                    await server.serve()
                finally:
                    session.counts = server.counts

        return session.carry_out(lambda: run_until_signal(work()))
