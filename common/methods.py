"""The ways to learn over bad links, behind one interface.

All but one move the model by θ ← a·θ + b·Σ_{m∈W} Q(Δθ_m), where W are the nodes whose messages the PS holds. They differ
in a and b, in what nodes relay, and in whether the links fail. With colrel, what is added is what nodes relayed: sums of
weighted updates, each of which counts in full. Where nothing came, θ stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MethodName = Literal["dnc", "repetition", "colrel", "qfl", "nonanonymous", "anonymous"]
AnonymousVariant = Literal["models", "updates"]
Relaying = Literal["coded", "repeated", "summed"]
"""What nodes relay: codewords of the diversity network code, messages as they came, or weighted sums of updates."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method. `weights(n, M)` gives a and b, the weights of the old model and of the n updates, or sums, that came."""

    relays: Relaying | None
    perfect_links: bool
    repeats: bool
    weights: Callable[[int, int], tuple[float, float]]


def _mean_of_received(num_received: int, num_clients: int) -> tuple[float, float]:
    return 1.0, 1 / num_received


def _models_over_all(num_received: int, num_clients: int) -> tuple[float, float]:
    """(1/M) Σ τ_m θ_m with θ_m = θ + Q(Δθ_m): each outage takes 1/M off the model."""
    return num_received / num_clients, 1 / num_clients


def _updates_over_all(num_received: int, num_clients: int) -> tuple[float, float]:
    return 1.0, 1 / num_clients


def method(name: MethodName, anonymous_variant: AnonymousVariant) -> Method:
    """The method of a name.

    dnc            cooperation by the diversity network code; W is what can be decoded
    repetition     cooperation without coding: relays repeat the messages that they heard
    colrel         collaborative relaying: the PS adds weighted sums of updates, not knowing whose they are
    qfl            quantised FL over perfect links: the ideal
    nonanonymous   the mean of the updates that arrived directly
    anonymous      the PS cannot tell who arrived and divides by M: a sum of `models`, or of `updates`
    """
    match name:
        case "dnc":
            return Method(relays="coded", perfect_links=False, repeats=True, weights=_mean_of_received)
        case "repetition":
            return Method(relays="repeated", perfect_links=False, repeats=True, weights=_mean_of_received)
        case "colrel":
            return Method(relays="summed", perfect_links=False, repeats=False, weights=_updates_over_all)
        case "qfl":
            return Method(relays=None, perfect_links=True, repeats=False, weights=_mean_of_received)
        case "nonanonymous":
            return Method(relays=None, perfect_links=False, repeats=False, weights=_mean_of_received)
        case "anonymous":
            weights = _models_over_all if anonymous_variant == "models" else _updates_over_all
            return Method(relays=None, perfect_links=False, repeats=False, weights=weights)
