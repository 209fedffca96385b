"""Limits of the operating system that a run must fit into."""

import resource

from dncfl.common.errors import ConfigError

SPARE_FILES = 64
"""Files of an interpreter with torch, its libraries and a run folder."""


def files_of_server(num_clients: int) -> int:
    """Files and sockets that the PS opens: three connections per node, and what libraries need."""
    return 3 * num_clients + SPARE_FILES


def files_of_launcher(num_clients: int) -> int:
    """Those of a PS that runs its nodes itself, with two more for each process."""
    return files_of_server(num_clients) + 2 * num_clients


def files_of_node(num_clients: int) -> int:
    """Those of a node: a connection from and to each peer."""
    return 2 * num_clients + SPARE_FILES


def ensure_files(needed: int, what_for: str) -> None:
    """Let this process open so many files. Raises ConfigError with the number where the system does not allow them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ConfigError(
                f"{what_for} needs {needed} open files, and {hard} are allowed here: ulimit -n {needed} allows them"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
