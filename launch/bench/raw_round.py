"""The floor of a round: the same frames between as many processes, over plain sockets, without any arithmetic or protocol.

The server publishes as many bytes as a model has; each node publishes a message to all, waits for those of its peers, and
publishes M - 1 codewords; the round ends when the server has them all. This is the letter's schedule over perfect links.
"""

import asyncio
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from time import perf_counter

import zmq
import zmq.asyncio

from dncfl.common import wire
from dncfl.common.message import MessageFormat
from dncfl.common.sockets import RECONNECT_MS

LOOPBACK = "127.0.0.1"
LAST = b"L"


def raw_rounds(num_clients: int, num_parameters: int, num_rounds: int) -> list[float]:
    """The seconds of each of num_rounds rounds of num_clients nodes, after the processes are connected."""
    context = multiprocessing.get_context("forkserver")
    pipes, processes = [], []
    for node in range(num_clients):
        ours, theirs = context.Pipe()
        process = context.Process(target=_run_node, args=(node, num_clients, num_parameters, theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        return asyncio.run(_serve(num_clients, num_parameters, num_rounds, pipes))
    finally:
        for process in processes:
            process.join(5)
            process.kill()


def _frames(topic: bytes, num_symbols: int) -> list[bytes]:
    """As a transmission: topic, header, plane, escapes; a codeword has one symbol in 257 escaped."""
    return [topic, bytes(90), bytes(num_symbols), bytes(4 * (num_symbols // 257) if topic == wire.TOPIC_CODEWORD else 0)]


def _socket(context: zmq.asyncio.Context, kind: int) -> zmq.asyncio.Socket:
    socket = context.socket(kind)
    socket.linger = 0
    socket.set_hwm(0)
    socket.reconnect_ivl = RECONNECT_MS
    if kind == zmq.XPUB:
        socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # every node's subscription counts, though all are to the same topics
    return socket


async def _serve(num_clients: int, num_parameters: int, num_rounds: int, pipes: Sequence[Connection]) -> list[float]:
    context = zmq.asyncio.Context()
    try:
        downlink, uplink = _socket(context, zmq.XPUB), _socket(context, zmq.SUB)
        port = downlink.bind_to_random_port(f"tcp://{LOOPBACK}")
        ports = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send((port, ports))
        for node_port in ports:
            uplink.connect(f"tcp://{LOOPBACK}:{node_port}")
        uplink.subscribe(b"")
        for _ in range(2 * num_clients):
            await downlink.recv()
        for pipe in pipes:
            pipe.recv()
        theta = bytes(4 * num_parameters)
        seconds = []
        for _ in range(num_rounds):
            started = perf_counter()
            await downlink.send_multipart([wire.TOPIC_DOWNLINK, bytes(40), theta], copy=False)
            for _ in range(num_clients * num_clients):
                await uplink.recv_multipart(copy=False)
            seconds.append(perf_counter() - started)
        await downlink.send(LAST)
        for pipe in pipes:
            pipe.recv()
        return seconds
    finally:
        context.destroy()


def _run_node(node: int, num_clients: int, num_parameters: int, pipe: Connection) -> None:
    asyncio.run(_until_server_ends(node, num_clients, num_parameters, pipe))


async def _until_server_ends(node: int, num_clients: int, num_parameters: int, pipe: Connection) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    task = asyncio.ensure_future(_take_part(node, num_clients, num_parameters, pipe))
    asyncio.get_running_loop().add_reader(parent.sentinel, task.cancel)
    await task


async def _take_part(node: int, num_clients: int, num_parameters: int, pipe: Connection) -> None:
    context = zmq.asyncio.Context()
    try:
        downlink, uplink, peers = (_socket(context, kind) for kind in (zmq.SUB, zmq.XPUB, zmq.SUB))
        pipe.send(uplink.bind_to_random_port(f"tcp://{LOOPBACK}"))
        server_port, ports = pipe.recv()
        downlink.connect(f"tcp://{LOOPBACK}:{server_port}")
        for topic in (wire.TOPIC_DOWNLINK, LAST):
            downlink.subscribe(topic)
        for port in ports[:node] + ports[node + 1 :]:
            peers.connect(f"tcp://{LOOPBACK}:{port}")
        peers.subscribe(wire.TOPIC_MESSAGE)
        for _ in range(num_clients):  # the peers and the server
            await uplink.recv()
        pipe.send("connected")
        num_symbols = MessageFormat(255, (num_parameters,)).num_symbols
        message = _frames(wire.TOPIC_MESSAGE, num_symbols)
        codeword = _frames(wire.TOPIC_CODEWORD, num_symbols)
        while (await downlink.recv_multipart(copy=False))[0].bytes != LAST:
            await uplink.send_multipart(message, copy=False)
            for _ in range(num_clients - 1):
                await peers.recv_multipart(copy=False)
            for _ in range(num_clients - 1):
                await uplink.send_multipart(codeword, copy=False)
        pipe.send("done")
    finally:
        context.destroy()
