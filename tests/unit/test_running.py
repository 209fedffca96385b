"""The end by signal."""

import asyncio
import os
import signal

import pytest

from dncfl.common.errors import NodeFailed, StorageError
from dncfl.common.running import Interrupted, run_until_signal


async def _stopped_and_then(error: Exception) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await asyncio.Event().wait()
    finally:
        raise error


def test_nodes_that_the_same_signal_stops_are_not_the_reason() -> None:
    with pytest.raises(Interrupted, match="stopped by SIGTERM"):
        run_until_signal(_stopped_and_then(NodeFailed("19 of 40 nodes are left")))


def test_what_goes_wrong_while_a_signal_ends_the_work_is_told() -> None:
    with pytest.raises(StorageError, match="disk full"):
        run_until_signal(_stopped_and_then(StorageError("disk full")))


def test_without_a_signal_failed_nodes_are_the_reason() -> None:
    async def fails() -> None:
        raise NodeFailed("too few are left")

    with pytest.raises(NodeFailed, match="too few"):
        run_until_signal(fails())
