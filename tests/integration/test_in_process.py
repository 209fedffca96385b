"""The PS and nodes in this very process, where the leak fixture sees their sockets, threads and tasks."""

import asyncio
from collections.abc import Sequence

import pytest
import zmq
import zmq.asyncio

from dncfl.common import wire
from dncfl.common.config import Config, load_config
from dncfl.common.errors import NodeFailed, RunStopped
from dncfl.common.running import run_beside
from dncfl.common.trace import AttemptTrace
from dncfl.node.process import NodeProcess
from dncfl.node.settings import NodeSettings
from dncfl.server.global_model import GlobalModel
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord

CONFIG = load_config(None, {"clients": 3, "rounds": 2, "local_epochs": 1, "pe": 0.3, "patience": 20})


class Run:
    """A server and its records."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.records: list[RoundRecord] = []
        self.server = ServerProcess(config, GlobalModel(config), self._record, Observer())

    def _record(self, record: RoundRecord, attempts: Sequence[AttemptTrace]) -> None:
        assert len(attempts) == record.attempts
        self.records.append(record)


def _settings(node: int, port: int) -> NodeSettings:
    return NodeSettings(node=node, server_host="127.0.0.1", server_port=port)


async def _nothing_left() -> None:
    """No task but this one is left once all has been awaited."""
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_whole_run_leaves_nothing() -> None:
    async def main() -> None:
        run = Run()
        with run.server.listening("127.0.0.1") as port:
            nodes = [NodeProcess(_settings(m, port)) for m in range(3)]
            await asyncio.gather(run.server.serve(), *(node.run() for node in nodes))
        assert [record.round for record in run.records] == [1, 2]
        assert run.server.counts == {"rejected_frames": 0, "stale_frames": 0}
        await _nothing_left()

    asyncio.run(main())


def test_junk_on_every_socket_is_counted_and_the_run_goes_on() -> None:
    async def main() -> None:
        run = Run()
        with run.server.listening("127.0.0.1") as port, zmq.asyncio.Context() as context:
            stranger = context.socket(zmq.DEALER)
            stranger.linger = 0
            stranger.connect(f"tcp://127.0.0.1:{port}")
            junk = [
                [b""],
                [b"\xc0"],
                [b"junk" * 100],
                [b"a", b"b"],
                [wire.encode(wire.Stop(completed=True, reason=""))],
                [wire.encode(wire.Connected(node=0))],
                [wire.encode(wire.Failed(node=1, reason="not me"))],
            ]
            for frames in junk:
                await stranger.send_multipart(frames)
            await stranger.send(wire.encode(wire.Alive()))

            async def answer() -> None:
                assert wire.decode(await stranger.recv(), wire.FROM_SERVER) == wire.Alive()

            async def nodes() -> None:
                await answer()  # so the junk before it has been read, too
                await asyncio.gather(*(NodeProcess(_settings(m, port)).run() for m in range(3)))

            await asyncio.gather(run.server.serve(), nodes())
            stranger.close()
        assert len(run.records) == 2
        assert run.server.counts["rejected_frames"] == len(junk)
        await _nothing_left()

    asyncio.run(main())


def test_a_node_that_never_sends_ends_the_run_by_name() -> None:
    """A stand-in for node 2 joins, subscribes and says that it is alive, but transmits nothing."""
    config = load_config(None, {"clients": 3, "rounds": 1, "local_epochs": 1, "patience": 1})

    async def mute(port: int) -> None:
        with zmq.asyncio.Context() as context:
            sockets = [context.socket(kind) for kind in (zmq.DEALER, zmq.SUB, zmq.XPUB, zmq.SUB)]
            control, downlink, uplink, ears = sockets
            for socket in sockets:
                socket.linger = 0
            control.connect(f"tcp://127.0.0.1:{port}")
            own_port = uplink.bind_to_random_port("tcp://127.0.0.1")
            await control.send(wire.encode(wire.Join(node=2, host="127.0.0.1", port=own_port)))
            welcome = wire.decode((await control.recv_multipart())[0], wire.FROM_SERVER)
            assert isinstance(welcome, wire.Welcome)
            downlink.connect(f"tcp://127.0.0.1:{welcome.downlink_port}")
            downlink.subscribe(wire.ready_topic(2))
            peers = wire.decode((await control.recv_multipart())[0], wire.FROM_SERVER)
            assert isinstance(peers, wire.Peers)
            for peer in (0, 1):
                ears.connect(f"tcp://{peers.hosts[peer]}:{peers.ports[peer]}")
            ears.subscribe(wire.ready_topic(2))
            while wire.ready_topic(wire.SERVER_NAME) not in await uplink.recv():
                pass
            await control.send(wire.encode(wire.Connected(node=2)))
            try:
                while True:
                    await control.send(wire.encode(wire.Alive()))
                    await asyncio.sleep(0.1)  # a heartbeat
            finally:
                for socket in sockets:
                    socket.close()

    async def honest(node: int, port: int) -> None:
        with pytest.raises(RunStopped, match="nothing has come for 1 s"):
            await NodeProcess(_settings(node, port)).run()

    async def main() -> None:
        run = Run(config)
        with run.server.listening("127.0.0.1") as port:

            async def serve() -> None:
                with pytest.raises(NodeFailed, match=r"no node is busy; missing: slot 1 of node 2"):
                    await run.server.serve()

            await run_beside(asyncio.gather(serve(), honest(0, port), honest(1, port)), mute(port))  # type: ignore[arg-type]
        await _nothing_left()

    asyncio.run(main())


def test_a_failing_helper_ends_all_with_its_error() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise NodeFailed("this one")

    async def main() -> None:
        with pytest.raises(NodeFailed, match="this one"):
            await run_beside(forever(), forever(), fail())
        await _nothing_left()

    asyncio.run(main())
