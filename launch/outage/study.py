"""The figures of one or more networks by each method that can give them, and which of them to trust most."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dncfl.launch.outage import enumeration, rare
from dncfl.launch.outage.enumeration import exact
from dncfl.launch.outage.monte_carlo import monte_carlo
from dncfl.launch.outage.network import Figures, Floats, MethodName, Network

ENOUGH = 1000
"""Failures after which Monte Carlo is good to about 3 %."""

FEWER = 10
"""A weighted trial takes longer and tells more: there is one for this many others."""


@dataclass(frozen=True, eq=False)
class Point:
    """One network and what is known of it."""

    network: Network
    figures: dict[MethodName, Figures]

    @property
    def best(self) -> Figures:
        """The exact figures, or else Monte Carlo's where it saw enough failures, or else those of rare-event sampling."""
        drawn = self.figures["Monte Carlo"]
        if "exact" in self.figures:
            return self.figures["exact"]
        return drawn if drawn.failures >= ENOUGH else self.figures.get("rare-event sampling", drawn)

    @property
    def relay_slots(self) -> Floats:
        """P(0..S relay slots are needed), from the best method that tells."""
        return next(each for each in (self.best.relay_slots, self.figures["Monte Carlo"].relay_slots) if each is not None)

    @property
    def mean_relay_slots(self) -> float:
        """How many relay slots are sent in an attempt with early stop, on average."""
        return float(self.relay_slots @ np.arange(len(self.relay_slots)))


def study(networks: Sequence[Network], trials: int, seed: int, tell: Callable[[str], None]) -> list[Point]:
    """A point for each of some networks that differ only in their outages; `tell` hears what is being done."""
    num_clients = networks[0].num_clients
    found: list[dict[MethodName, Figures]] = [{} for _ in networks]
    if num_clients <= enumeration.MOST_CLIENTS:
        tell("going through all states of the links")
        for figures, known in zip(found, exact(networks), strict=True):
            figures["exact"] = known
    for figures, network in zip(found, networks, strict=True):
        tell(f"P_e = {network.direct:.4g}: Monte Carlo")
        figures["Monte Carlo"] = monte_carlo(network, trials, seed)
        if enumeration.MOST_CLIENTS < num_clients <= rare.MOST_CLIENTS:
            tell(f"P_e = {network.direct:.4g}: rare-event sampling")
            figures["rare-event sampling"] = rare.rare(network, max(1000, trials // FEWER), seed)
    return [Point(network, figures) for network, figures in zip(networks, found, strict=True)]
