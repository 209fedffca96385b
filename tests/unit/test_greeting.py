"""What ZeroMQ sockets, and others, answer to who asks for their greeting."""

import asyncio

import pytest
import zmq

from dncfl.common import greeting
from dncfl.common.greeting import mechanism_at

HOST = "127.0.0.1"


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE"])
def test_a_socket_names_its_mechanism(mechanism: str) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        if mechanism == "PLAIN":
            socket.plain_server = True
        if mechanism == "CURVE":
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        port = socket.bind_to_random_port(f"tcp://{HOST}")
        for _ in range(20):
            assert asyncio.run(mechanism_at(HOST, port)) == mechanism


@pytest.mark.parametrize(
    "words", [b"", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"]
)
@pytest.mark.parametrize("hangs_up", [False, True])
def test_others_name_none(words: bytes, hangs_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "PATIENCE_SECONDS", 0.2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        if not hangs_up:
            await reader.read()  # until who asks has enough
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(answer, HOST, 0) as server:
            host, port = server.sockets[0].getsockname()
            assert await mechanism_at(host, port) is None
        assert await mechanism_at(host, port) is None  # nobody is there any more

    asyncio.run(main())
