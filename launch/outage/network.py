"""What the three ways to a figure have in common: the network that they look at, and how a figure is given."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.config import Config
from dncfl.common.errors import ConfigError
from dncfl.common.payload import Symbols
from dncfl.common.scheme import network_code

Floats = NDArray[np.float64]
MethodName = Literal["exact", "Monte Carlo", "rare-event sampling"]

Z_95 = 1.959964
"""The normal quantile of two-sided intervals of 95 %."""


@dataclass(frozen=True, eq=False)
class Network:
    """M nodes with their code, and the outage probability of each link: M × (M + 1), the PS last."""

    code: DiversityNetworkCode
    outage: Floats

    @classmethod
    def of(cls, config: Config) -> "Network":
        """The network of a configuration. Raises ConfigError for recorded links, and for relays that do not code."""
        if config.trace is not None:
            raise ConfigError("channel = 'trace': recorded links have no outage probability; give pe or snr")
        code = network_code(config)
        if not isinstance(code, DiversityNetworkCode):
            raise ConfigError(f"method = {config.method}: its relays do not use the diversity network code; must be dnc")
        return cls(code, config.outage)

    @property
    def num_clients(self) -> int:
        """M."""
        return self.code.num_clients

    @cached_property
    def blocks(self) -> Symbols:
        """The A_m of all nodes: M × M × relay_slots."""
        return np.ascontiguousarray([self.code.block(m) for m in range(self.num_clients)])

    @cached_property
    def transmissions(self) -> Floats:
        """The outage of all that is received in an attempt: M × (M + 1 + relay_slots), a row per sender.

        Columns are slot 1 at each node, slot 1 at the PS, and each relay slot at the PS. A node has no link to itself.
        """
        outage = np.hstack([self.outage, np.repeat(self.outage[:, -1:], self.code.relay_slots, axis=1)])
        np.fill_diagonal(outage, 0.0)
        return outage

    @property
    def equal_links(self) -> bool:
        """Whether all links have one outage probability, P_e."""
        links = self.outage[~np.eye(*self.outage.shape, dtype=np.bool_)]
        return bool((links == links[0]).all())

    @property
    def as_in_letter(self) -> bool:
        """Whether the letter's P_e^{2M-1} is meant for it."""
        return self.equal_links and self.code.relay_slots == self.num_clients - 1

    @property
    def direct(self) -> float:
        """The mean outage without cooperation: that of the links to the PS."""
        return float(self.outage[:, -1].mean())

    @property
    def order(self) -> int:
        """How many transmissions the letter's dominant event takes: 2M - 1 with all relay slots, 1 without any."""
        return self.num_clients + self.code.relay_slots if self.code.relay_slots else 1

    @property
    def dominant(self) -> float:
        """The letter's dominant event, P_e^(2M-1) for equal links and all relay slots, as a mean over the nodes.

        It is that no other node hears a message and that the PS hears neither it nor any codeword of its own node.
        """
        to_server = self.outage[:, -1] ** (1 + self.code.relay_slots)
        return float((to_server * self._unheard.prod(axis=1)).mean()) if self.code.relay_slots else self.direct

    @property
    def absent(self) -> Floats:
        """The probability that a message takes part in no equation that arrives: (M,). Then it is lost for certain.

        q_z^(1+S) · Π_k (q_zk + (1 - q_zk) q_k^S) for S relay slots: each other node does not hear it, or is not heard.
        """
        silent = self.outage[:, -1] ** self.code.relay_slots
        hidden = self._unheard + (1 - self._unheard) * silent
        np.fill_diagonal(hidden, 1.0)
        absent: Floats = self.outage[:, -1] * silent * hidden.prod(axis=1)
        return absent

    @property
    def _unheard(self) -> Floats:
        unheard = self.outage[:, :-1].copy()
        np.fill_diagonal(unheard, 1.0)
        return unheard


@dataclass(frozen=True)
class Estimate:
    """A probability, its standard error, and an interval that holds it with 95 %."""

    value: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Figures:
    """What one method says of one network, after one attempt."""

    method: MethodName
    trials: int
    """0 where nothing was drawn"""
    failures: int
    """trials in which some message was not recovered"""
    outage: Estimate
    """that one message is not recovered, as a mean over the nodes"""
    outage_by_node: Floats
    """the same for each node: (M,)"""
    not_all: Estimate
    """that not all messages are recovered"""
    num_recovered: Floats
    """P(|W| = 0..M): (M + 1,)"""
    relay_slots: Floats | None
    """P(0..S relay slots are needed): (S + 1,), the last also where they do not suffice; None where the method cannot tell"""


def certain(value: float) -> Estimate:
    """A probability that was computed, not estimated."""
    return Estimate(value, 0.0, value, value)


def normal(value: float, standard_error: float) -> Estimate:
    """A mean of many weighted draws."""
    half = Z_95 * standard_error
    return Estimate(value, standard_error, max(0.0, value - half), min(1.0, value + half))


def wilson(share: float, standard_error: float, trials: int) -> Estimate:
    """The share of trials in which something happened, with Wilson's interval, which is right near 0 and 1, too.

    The messages of one trial fail together, so that their mean has a standard error of its own; the interval is that of as
    many independent draws as would have this standard error (of `trials` where nothing, or everything, happened).
    """
    n = share * (1 - share) / standard_error**2 if standard_error > 0 else trials
    middle = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * sqrt(share * (1 - share) / n + Z_95**2 / (4 * n**2))
    return Estimate(share, standard_error, min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half)))


def slope(networks: Sequence[Network], outages: Sequence[float]) -> float | None:
    """The slope of log outage over log P_e by least squares; None for fewer than two positive points."""
    points = [(network.direct, outage) for network, outage in zip(networks, outages, strict=True)]
    points = [(pe, outage) for pe, outage in points if pe > 0 and outage > 0]
    if len({pe for pe, _ in points}) < 2:
        return None
    pe, outage = np.log(np.array(points)).T
    return float(np.polyfit(pe, outage, 1)[0])
