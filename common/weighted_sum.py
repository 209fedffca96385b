"""A weighted sum of updates as symbols that prove themselves: what a node relays with collaborative relaying.

    checksum      4 bytes   of XXH3 over the values
    values        4 bytes each, little-endian float32

Every byte is a symbol.
"""

import numpy as np
import xxhash  # as for messages
from numpy.typing import NDArray

from dncfl.common.errors import ChecksumError
from dncfl.common.message import CHECKSUM
from dncfl.common.payload import Payload

VALUE = np.dtype("<f4")


def sum_symbols(num_values: int) -> int:
    """How many symbols the sum of updates with so many values has."""
    return CHECKSUM + VALUE.itemsize * num_values


def encode_sum(values: NDArray[np.float32]) -> Payload:
    """The symbols of a sum (d,)."""
    data = values.astype(VALUE, copy=False).tobytes()
    return Payload(np.frombuffer(_checksum(data) + data, dtype=np.uint8))


def decode_sum(payload: Payload, *, round: int, sender: int) -> NDArray[np.float32]:
    """The sum in a payload. Raises ChecksumError when it is none, or holds values that are not finite."""
    where, symbols = f"the sum of node {sender} in round {round}", payload.symbols
    if symbols.size < CHECKSUM or symbols.max() > 255:
        raise ChecksumError(f"{where} holds symbols that are no bytes")
    data = symbols.astype(np.uint8, copy=False).tobytes()
    if data[:CHECKSUM] != _checksum(memoryview(data)[CHECKSUM:]):
        raise ChecksumError(f"{where} does not match its checksum")
    values: NDArray[np.float32] = np.frombuffer(data, dtype=VALUE, offset=CHECKSUM).astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise ChecksumError(f"{where} holds values that are not finite")
    return values


def _checksum(data: bytes | memoryview) -> bytes:
    return xxhash.xxh3_64_digest(data)[:CHECKSUM]
