"""Counter-based random streams: each draw depends on what it is for, never on when or where it is made.

A stream is a Philox-4x64 generator whose key is (seed, purpose) and whose counter starts at
(0, round and attempt, slot, sender and receiver). The lowest counter word is left to the stream itself, so that two
streams never overlap.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class Purpose(IntEnum):
    """What a stream is drawn for. The numbers are part of every recorded result: never reuse or change one."""

    CHANNEL = 1
    QUANTISER = 2
    SHUFFLE = 3
    DROPOUT = 4
    INITIAL_MODEL = 5
    PARTITION = 6
    TEST_SPLIT = 7
    OUTAGE = 8
    RARE_OUTAGE = 9


class _NoSeed(ISeedSequence):
    """What a generator is made of whose state is set at once: else it would ask the system for entropy each time."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.zeros(n_words, dtype=dtype)


def stream(
    seed: int,
    purpose: Purpose,
    *,
    round: int = 0,
    attempt: int = 0,
    slot: int = 0,
    sender: int = 0,
    receiver: int = 0,
) -> np.random.Generator:
    """The random stream of one purpose at one place of the run. Every argument is in 0..2^32-1, the seed in 0..2^64-1."""
    no_seed: Any = _NoSeed()
    generator = np.random.Philox(no_seed)
    state: Any = {
        "bit_generator": "Philox",
        "state": {"key": (seed, purpose), "counter": (0, round << 32 | attempt, slot, sender << 32 | receiver)},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # it is empty
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator.state = state
    return np.random.Generator(generator)


def torch_seed(seed: int, purpose: Purpose, *, round: int = 0, sender: int = 0) -> int:
    """A 63-bit seed for a torch generator, drawn from the stream of the same arguments."""
    return int(stream(seed, purpose, round=round, sender=sender).integers(2**63))
