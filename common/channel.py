"""The wireless links: which transmissions arrive.

A link goes from a sender (0..M-1) to a receiver: another node, or the PS, which has number M here. Each transmission
(round, attempt, slot) meets a new, independent state of the link (block fading). A receiver asks for all its links in a
slot at once, so the draws of one slot at one receiver are one random stream with a position per sender.
"""

from abc import ABC, abstractmethod
from enum import Enum
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dncfl.common.randomness import Purpose, stream

Flags = NDArray[np.bool_]
Real = TypeVar("Real", float, NDArray[np.float64])


class Outcome(Enum):
    """What became of one transmission on one link; the value is its letter in a trace."""

    DELIVERED = "d"
    ERASED = "e"
    LOST = "l"


class Channel(ABC):
    """The links of M nodes and a PS."""

    @abstractmethod
    def delivers(self, *, round: int, attempt: int, slot: int, receiver: int) -> Flags:
        """Which senders' transmissions of a slot reach `receiver`: (M,) flags. A node reaches itself always."""


class PerfectChannel(Channel):
    """Links without outage."""

    def __init__(self, num_clients: int) -> None:
        self._num_clients = num_clients

    def delivers(self, *, round: int, attempt: int, slot: int, receiver: int) -> Flags:
        return np.ones(self._num_clients, dtype=bool)


class RandomChannel(Channel):
    """Links in outage at random; `_in_outage` turns one uniform draw per sender into outages."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def delivers(self, *, round: int, attempt: int, slot: int, receiver: int) -> Flags:
        rng = stream(self._seed, Purpose.CHANNEL, round=round, attempt=attempt, slot=slot, receiver=receiver)
        delivered = ~self._in_outage(rng, receiver)
        if receiver < delivered.size:
            delivered[receiver] = True
        return delivered

    @abstractmethod
    def _in_outage(self, rng: np.random.Generator, receiver: int) -> Flags: ...


class BernoulliChannel(RandomChannel):
    """Each link (m, k) is in outage with its own probability."""

    def __init__(self, seed: int, outage: NDArray[np.float64]) -> None:
        """outage: M × (M + 1), q_mk in the first M columns and q_m, towards the PS, in the last."""
        super().__init__(seed)
        self._outage = outage

    def _in_outage(self, rng: np.random.Generator, receiver: int) -> Flags:
        return rng.random(len(self._outage)) < self._outage[:, receiver]


class RayleighChannel(RandomChannel):
    """Rayleigh block fading: h ~ CN with variance σ² per real dimension; outage when |h|² < g = (2^{2R} - 1)/SNR."""

    def __init__(self, seed: int, *, snr: NDArray[np.float64], rate: NDArray[np.float64], sigma2: NDArray[np.float64]) -> None:
        """snr (linear), rate (R, bits per real dimension) and sigma2 (σ²): one value per link, M × (M + 1) each."""
        super().__init__(seed)
        self._threshold = fading_threshold(snr, rate)
        self._mean_gain = 2 * sigma2

    def _in_outage(self, rng: np.random.Generator, receiver: int) -> Flags:
        """|h|² is the sum of two squared normals of variance σ²: exponential with mean 2σ², drawn by inversion."""
        uniform = rng.random(len(self._threshold))
        gain = -self._mean_gain[:, receiver] * np.log1p(-uniform)
        return gain < self._threshold[:, receiver]


SLOTS_KEPT = 1024
"""Slots whose draws a drop layer remembers: four attempts of the largest run. Others are drawn again, to the same end."""


class DropLayer:
    """The channel at one receiver: what becomes of each frame that crossed the wire."""

    def __init__(self, channel: Channel, receiver: int) -> None:
        """receiver: a node's number, or M for the PS."""
        self._delivers = lru_cache(SLOTS_KEPT)(partial(channel.delivers, receiver=receiver))

    def outcome(self, *, round: int, attempt: int, slot: int, sender: int) -> Outcome:
        """DELIVERED or ERASED, the same however often it is asked."""
        flags = self._delivers(round=round, attempt=attempt, slot=slot)
        return Outcome.DELIVERED if flags[sender] else Outcome.ERASED


def fading_threshold(snr: Real, rate: Real) -> Real:
    """g = (2^{2R} - 1)/SNR: a link whose gain |h|² is below it is in outage (section II-B of the letter)."""
    return (2 ** (2 * rate) - 1) / snr


def outage_probability(snr: Real, rate: Real, sigma2: Real | float = 1.0) -> Real:
    """P_e = 1 - exp(-g / 2σ²) of a Rayleigh link, or of each (section II-B of the letter)."""
    outage: Real = -np.expm1(-fading_threshold(snr, rate) / (2 * sigma2))
    return outage
