"""A weighted sum of updates as symbols that prove themselves: what a node relays with collaborative relaying.

    checksum      4 bytes   CRC-32 over the values
    values        4 bytes each, little-endian float32

Every byte is a symbol.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from dncfl.common.errors import ChecksumError
from dncfl.common.payload import Payload

_CHECKSUM = struct.Struct("<I")
VALUE = np.dtype("<f4")


def sum_symbols(num_values: int) -> int:
    """How many symbols the sum of updates with so many values has."""
    return _CHECKSUM.size + VALUE.itemsize * num_values


def encode_sum(values: NDArray[np.float32]) -> Payload:
    """The symbols of a sum (d,)."""
    data = values.astype(VALUE, copy=False).tobytes()
    return Payload(np.frombuffer(_CHECKSUM.pack(zlib.crc32(data)) + data, dtype=np.uint8))


def decode_sum(payload: Payload, *, round: int, sender: int) -> NDArray[np.float32]:
    """The sum in a payload. Raises ChecksumError when it is none, or holds values that are not finite."""
    where, symbols = f"the sum of node {sender} in round {round}", payload.symbols
    if symbols.size < _CHECKSUM.size or symbols.max() > 255:
        raise ChecksumError(f"{where} holds symbols that are no bytes")
    data = symbols.astype(np.uint8, copy=False).tobytes()
    if _CHECKSUM.unpack_from(data)[0] != zlib.crc32(memoryview(data)[_CHECKSUM.size :]):
        raise ChecksumError(f"{where} does not match its checksum")
    values: NDArray[np.float32] = np.frombuffer(data, dtype=VALUE, offset=_CHECKSUM.size).astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise ChecksumError(f"{where} holds values that are not finite")
    return values
