"""A ZeroMQ socket's greeting, which names the security mechanism that it wants (ZMTP 3.1, RFC 37, "The Greeting")."""

import asyncio
from contextlib import suppress

PATIENCE_SECONDS = 2.0
"""How long a greeting may take to come."""

OURS = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03"
"""Signature and major version: all that the other side waits for before it says the rest. We name no mechanism."""

SIGNATURE_AND_VERSION, MECHANISM = 12, 20
"""Bytes of the parts of a greeting."""


async def mechanism_at(host: str, port: int) -> str | None:
    """The mechanism that whoever listens at host:port names, as "NULL" or "CURVE"; None where nobody says any in time."""
    with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(OURS)
                greeting = await reader.readexactly(SIGNATURE_AND_VERSION + MECHANISM)
            finally:
                writer.close()
        if greeting[:1] == b"\xff" and greeting[9:10] == b"\x7f":
            return greeting[SIGNATURE_AND_VERSION:].rstrip(b"\0").decode(errors="replace")
    return None
