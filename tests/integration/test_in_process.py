"""The PS and nodes in this very process, where the leak fixture sees their sockets, threads and tasks."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
import zmq
import zmq.asyncio

from dncfl.common import wire
from dncfl.common.config import Config, load_config
from dncfl.common.errors import NodeFailed
from dncfl.common.running import run_beside
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.node.process import NodeProcess
from dncfl.node.settings import NodeSettings
from dncfl.server.global_model import GlobalModel
from dncfl.server.observer import Observer
from dncfl.server.process import ServerProcess
from dncfl.server.records import RoundRecord

CONFIG_VALUES: dict[str, object] = {"clients": 3, "rounds": 2, "local_epochs": 1, "pe": 0.3, "patience": 20}
CONFIG = load_config(None, CONFIG_VALUES)


class Run(Observer):
    """A server, its records, and who watches it."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.records: list[RoundRecord] = []
        self.traces: list[AttemptTrace] = []
        self.warnings: list[str] = []
        self.server = ServerProcess(config, GlobalModel(config), self._record, self)

    def _record(self, record: RoundRecord, attempts: Sequence[AttemptTrace], theta: Vector) -> None:
        assert len(attempts) == record.attempts
        assert theta.dtype == np.float32
        self.records.append(record)
        self.traces.extend(attempts)

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def _settings(node: int, port: int) -> NodeSettings:
    return NodeSettings(node=node, server_host="127.0.0.1", server_port=port)


async def _nothing_left() -> None:
    """No task but this one is left once all has been awaited."""
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("method", ["dnc", "repetition", "colrel"])
def test_a_whole_run_leaves_nothing(method: str) -> None:
    config = load_config(None, CONFIG_VALUES | {"method": method})

    async def main() -> None:
        run = Run(config)
        with run.server.listening("127.0.0.1") as port:
            nodes = [NodeProcess(_settings(m, port)) for m in range(3)]
            await asyncio.gather(run.server.serve(), *(node.run() for node in nodes))
        assert [record.round for record in run.records] == [1, 2]
        assert all(record.transmissions["lost"] == 0 for record in run.records)
        assert run.warnings == []
        assert run.server.counts == {"rejected_frames": 0, "damaged_frames": 0, "stale_frames": 0}
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
                [wire.encode(wire.Connected(node=0, edition=1))],
                [wire.encode(wire.Failed(node=1, reason="not me"))],
            ]
            for frames in junk:
                await stranger.send_multipart(frames)
            await stranger.send(wire.encode(wire.Alive()))

            async def answer() -> None:
                for _ in range(3):  # to the two headers in the junk, and to this
                    assert wire.decode(await stranger.recv(), wire.FROM_SERVER) == wire.Rejoin()

            async def nodes() -> None:
                await answer()  # so the junk before it has been read, too
                await asyncio.gather(*(NodeProcess(_settings(m, port)).run() for m in range(3)))

            await asyncio.gather(run.server.serve(), nodes())
            stranger.close()
        assert len(run.records) == 2
        assert run.server.counts["rejected_frames"] == len(junk)
        await _nothing_left()

    asyncio.run(main())


def test_a_node_that_never_sends_loses_its_transmissions_and_the_run_goes_on() -> None:
    """A stand-in for node 2 joins, subscribes and says that it is alive, but transmits nothing."""
    config = load_config(None, {"clients": 3, "rounds": 2, "local_epochs": 1, "slot_patience": 1, "pe": 0.2})

    async def mute(port: int) -> None:
        with zmq.asyncio.Context() as context:
            sockets = [context.socket(kind) for kind in (zmq.DEALER, zmq.SUB, zmq.XPUB, zmq.SUB)]
            control, downlink, uplink, ears = sockets
            for socket in sockets:
                socket.linger = 0
            control.connect(f"tcp://127.0.0.1:{port}")
            own_port = uplink.bind_to_random_port("tcp://127.0.0.1")
            await control.send(wire.encode(wire.Join(node=2, incarnation=5, host="127.0.0.1", port=own_port)))
            welcome = wire.decode((await control.recv_multipart())[0], wire.FROM_SERVER)
            assert isinstance(welcome, wire.Welcome)
            downlink.connect(f"tcp://127.0.0.1:{welcome.downlink_port}")
            downlink.subscribe(wire.ready_topic(2, 5))
            await control.send(wire.encode(wire.Loaded(node=2)))
            peers = wire.decode((await control.recv_multipart())[0], wire.FROM_SERVER)
            assert isinstance(peers, wire.Peers)
            for peer in (0, 1):
                ears.connect(f"tcp://{peers.hosts[peer]}:{peers.ports[peer]}")
            ears.subscribe(wire.ready_topic(2, 5))
            while wire.ready_topic(wire.SERVER_NAME) not in await uplink.recv():
                pass
            await control.send(wire.encode(wire.Connected(node=2, edition=peers.edition)))
            try:
                while True:
                    await control.send(wire.encode(wire.Alive()))
                    await asyncio.sleep(0.1)  # a heartbeat
            finally:
                for socket in sockets:
                    socket.close()

    async def main() -> None:
        run = Run(config)
        with run.server.listening("127.0.0.1") as port:
            nodes = (NodeProcess(_settings(m, port)).run() for m in (0, 1))
            await run_beside(asyncio.gather(run.server.serve(), *nodes), mute(port))
        assert [set(record.recovered) for record in run.records] == [{0, 1}, {0, 1}]
        for trace in run.traces:
            assert trace.slot1[2] == "ll-l"
            assert [row[2] for row in trace.slot1[:2]] == ["l", "l"]
            assert set(trace.relay[2]) <= {"l"}
            assert "l" not in trace.slot1[0][1] + trace.slot1[0][3] + trace.slot1[1][0] + trace.slot1[1][3]
        assert any("node 2 did not report: no further part in round 1" in warning for warning in run.warnings)
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
