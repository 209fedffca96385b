"""Runs over a network that misbehaves: all rounds are done, what was lost is in the trace, and the trace gives the model."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import dncfl.node.process
from dncfl.common import wire
from dncfl.common.config import load_config
from dncfl.common.tasks.model import Vector
from dncfl.common.trace import AttemptTrace
from dncfl.launch.reference import as_recorded, reference_rounds
from dncfl.node.life import Life
from dncfl.node.process import NodeProcess
from dncfl.node.settings import NodeSettings
from dncfl.server.global_model import GlobalModel
from dncfl.server.records import RoundRecord
from tests.integration.models import LINEAR
from tests.integration.processes import finish, read_until, start, summary_here
from tests.integration.proxy import LOOPBACK, Proxy
from tests.integration.test_in_process import Run

ROUNDS = 40
FAULTY = 2
"""The node whose network misbehaves."""

CONFIG = load_config(
    None,
    {
        "clients": 3,
        "rounds": ROUNDS,
        "local_epochs": 2,
        "pe": 0.2,
        "patience": 3,
        "slot_patience": 1,
        "model": LINEAR,
    },
)
Script = dict[int, Callable[[], None]]
"""What happens to the network once a round is recorded."""


class Proxied(Run):
    """A run in this process. Node 2 talks to the PS through a proxy, hears it through another, and is heard through a third."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        model = self.server._model
        assert isinstance(model, GlobalModel)
        self.model = model
        self.control, self.downlink, self.uplink = Proxy(), Proxy(), Proxy()
        self.script: Script = {}

    def _record(self, record: RoundRecord, attempts: Sequence[AttemptTrace], theta: Vector) -> None:
        super()._record(record, attempts, theta)
        if (fault := self.script.get(record.round)) is not None:
            self._loop.call_soon_threadsafe(fault)

    async def carry_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        downlink, uplink = self.downlink, self.uplink

        class ThroughProxies(Life):
            async def _ask_to_join(self, join: wire.Join) -> None:
                if join.node == FAULTY:
                    uplink.target = (join.host, join.port)
                    join = join.model_copy(update={"port": uplink.port})
                await super()._ask_to_join(join)

            def _hear_server(self, welcome: wire.Welcome) -> None:
                if self._node == FAULTY:
                    downlink.target = (LOOPBACK, welcome.downlink_port)
                    welcome = welcome.model_copy(update={"downlink_port": downlink.port})
                super()._hear_server(welcome)

        monkeypatch.setattr(dncfl.node.process, "Life", ThroughProxies)
        async with AsyncExitStack() as proxies:
            with self.server.listening(LOOPBACK) as port:
                for proxy in (self.control, self.downlink, self.uplink):
                    await proxies.enter_async_context(proxy)
                self.control.target = (LOOPBACK, port)
                ports = [self.control.port if m == FAULTY else port for m in range(CONFIG.clients)]
                nodes = [
                    NodeProcess(NodeSettings(node=m, server_host=LOOPBACK, server_port=ports[m], model=LINEAR))
                    for m in range(CONFIG.clients)
                ]
                async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
                    for work in (self.server.serve(), *(node.run() for node in nodes)):
                        tasks.create_task(work)

    def warning(self, text: str) -> None:
        super().warning(text)
        if f"node {FAULTY} is gone" in text:
            self.control.heal()

    def check(self) -> None:
        """All rounds are done, the links of others lost nothing, and the trace gives the model."""
        assert [record.round for record in self.records] == list(range(1, ROUNDS + 1))
        assert sum(record.attempts for record in self.records) == len(self.traces)
        for trace in self.traces:
            for sender, row in enumerate(trace.slot1):
                assert "l" not in "".join(row[k] for k in range(len(row)) if FAULTY not in (sender, k)), trace
        replayed = GlobalModel(CONFIG)
        for _ in reference_rounds(CONFIG, replayed, lambda number: as_recorded(CONFIG, self.traces, number)):
            pass
        assert replayed.sha256 == self.model.sha256

    def traces_of(self, round: int) -> list[AttemptTrace]:
        return [trace for trace in self.traces if trace.round == round]

    def lost(self, round: int) -> int:
        """Transmissions that were lost in a round."""
        return self.records[round - 1].transmissions["lost"]

    @property
    def rounds_with_losses(self) -> list[int]:
        return [record.round for record in self.records if record.transmissions["lost"]]


def _run(monkeypatch: pytest.MonkeyPatch, script: Callable[[Proxied], Script]) -> Proxied:
    run = Proxied()
    run.script = script(run)
    asyncio.run(run.carry_out(monkeypatch))
    run.check()
    return run


def test_latency_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(run: Proxied) -> Script:
        def begin() -> None:
            run.control.delay(0.005, 0.02)
            run.uplink.delay(0.01, 0.05)

        return {2: begin}

    run = _run(monkeypatch, slow)
    assert run.uplink.counts["delayed"] >= (ROUNDS - 2) * 3  # to two peers and the PS
    assert run.control.counts["delayed"] >= ROUNDS - 2
    assert run.rounds_with_losses == []


@pytest.mark.parametrize("after", [0, 4000], ids=["reset", "truncated"])
def test_connections_that_break_lose_what_was_on_its_way(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A message is 8 kB: it is lost as a whole, on all three links of its sender, and the next ones arrive."""
    run = _run(monkeypatch, lambda run: {3: lambda: run.uplink.reset("out", after)})
    assert run.uplink.counts["resets"] == 3
    assert run.uplink.counts["connections"] >= 6
    assert run.traces_of(4)[0].slot1[FAULTY] == "ll-l"
    assert run.lost(ROUNDS) == 0


def test_a_link_that_swallows_all_loses_it_and_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it gives back when it heals is long past: it counts as stale, and as lost in the rounds that it belonged to."""
    run = _run(monkeypatch, lambda run: {3: lambda: run.uplink.blackhole("out"), 8: run.uplink.heal})
    assert run.uplink.counts["held"] > 0
    assert run.uplink.counts["resets"] == 0
    for round in range(4, 9):
        assert all(trace.slot1[FAULTY] == "ll-l" for trace in run.traces_of(round))
    assert run.server.counts["stale_frames"] >= 5
    assert run.lost(ROUNDS) == 0


def test_a_control_connection_that_breaks_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(monkeypatch, lambda run: {number: lambda: run.control.reset("in", 100) for number in (3, 10, 20)})
    assert run.control.counts["resets"] == 3
    assert run.control.counts["connections"] == 4
    assert run.lost(ROUNDS) == 0


def test_a_model_that_breaks_off_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is 31 kB: the first connection ends within it, and the node gets it over the next."""
    run = _run(monkeypatch, lambda run: {number: lambda: run.downlink.reset("out", 4000) for number in (3, 10, 20)})
    assert run.downlink.counts["resets"] == 3
    assert run.downlink.counts["connections"] == 4
    assert run.rounds_with_losses == []


def test_a_node_process_behind_a_link_that_swallows_all_joins_anew(tmp_path: Path) -> None:
    """The same with real processes: `dncfl node 2 --server` is given the proxy's address."""
    options = ["--clients", 3, "--rounds", 15, "--local-epochs", 2, "--pe", 0.2, "--patience", 2, "--slot-patience", 1]

    async def main() -> Proxy:
        server = start("server", *options, "--bind", "127.0.0.1:0", "--out", "run", "--log-level", "info", cwd=tmp_path)
        address = await asyncio.to_thread(read_until, server, r"--server (127\.0\.0\.1:\d+)")
        async with Proxy(port=int(address.rpartition(":")[2])) as proxy:
            servers = [f"{LOOPBACK}:{proxy.port}" if m == FAULTY else address for m in range(3)]
            nodes = [start("node", m, "--server", servers[m], cwd=tmp_path) for m in range(3)]
            await asyncio.to_thread(read_until, server, "round (2) starts")
            proxy.blackhole("in", "out")
            await asyncio.to_thread(read_until, server, f"(node {FAULTY} is gone: it has been silent for 2 s)")
            proxy.heal()
            await asyncio.to_thread(read_until, server, f"(node {FAULTY} has joined)")
            for process in (server, *nodes):
                exit_code, _, stderr = await asyncio.to_thread(finish, process)
                assert exit_code == 0, stderr
        return proxy

    proxy = asyncio.run(main())
    assert proxy.counts["held"] > 0
    lost = [json.loads(line)["lost_links"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lost) == 15
    assert any(lost)
    assert lost[-1] == {}
    assert all(str(FAULTY) in link for each in lost for link in each)
    summary_here("replay", "run", "--out", "replayed", cwd=tmp_path)  # it fails where the model is another


def test_a_node_that_the_server_does_not_hear_is_left_out_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its control connection swallows all for longer than the patience; what it transmits is heard all the same."""
    run = _run(monkeypatch, lambda run: {3: lambda: run.control.blackhole("in", "out")})
    assert run.control.counts["held"] > 0
    assert any(f"node {FAULTY} is gone: it has been silent for 3 s" in warning for warning in run.warnings)
    assert run.lost(5) > 0
    assert run.lost(ROUNDS) == 0
