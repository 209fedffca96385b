"""Made-up updates."""

from dncfl.common.quantiser import Levels
from dncfl.common.update import Part, QuantisedUpdate


def update_of(levels: Levels, bound: float = 0.1, num_samples: int = 1) -> QuantisedUpdate:
    """An update with one bound for all of it."""
    return QuantisedUpdate(levels=levels, parts=(Part(levels.size, bound),), num_samples=num_samples)
