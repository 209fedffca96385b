"""The settings of one node."""

from dataclasses import dataclass
from pathlib import Path

from dncfl.common.faults import Fault
from dncfl.common.security import NO_KEYS, Security


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What a node knows before it meets the PS; all else comes from there.

    A model or a data set of the user's own is imported only where it is named here too: the PS cannot make a node run code.
    """

    node: int
    server_host: str
    server_port: int
    host: str | None = None
    port: int | None = None
    data_root: str | None = None
    device: str | None = None
    trace: str | None = None
    model: str | None = None
    dataset: str | None = None
    patience: float = 600.0
    """seconds without a word from the PS after which the node gives up"""
    faults: tuple[Fault, ...] = ()
    fault_log: Path | None = None
    security: Security = NO_KEYS
