"""Every test must leave the process as it found it."""

import gc
import os
import threading
from collections.abc import Iterator

import psutil
import pytest
import torch

import dncfl.common.field  # noqa: F401  # numba's and torch's own threads and files are there before the first test


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaks a thread, a child process or a socket; asyncio tasks end with their runner, which warns."""
    process = psutil.Process(os.getpid())
    torch.set_num_threads(1)
    threads = set(threading.enumerate())
    children = {child.pid for child in process.children(recursive=True)}
    sockets = {connection.fd for connection in process.net_connections("all")}
    yield
    gc.collect()
    left_threads = [thread.name for thread in threading.enumerate() if thread not in threads and not _is_pyzmqs(thread)]
    left_children = [child for child in process.children(recursive=True) if child.pid not in children]
    left_sockets = [connection for connection in process.net_connections("all") if connection.fd not in sockets]
    assert not left_threads, f"threads left behind: {left_threads}"
    assert not left_children, f"child processes left behind: {left_children}"
    assert not left_sockets, f"sockets left behind: {left_sockets}"


def _is_pyzmqs(thread: threading.Thread) -> bool:
    """pyzmq keeps one thread for ever to release buffers that were sent without a copy."""
    return type(thread).__module__ == "zmq.utils.garbage"
