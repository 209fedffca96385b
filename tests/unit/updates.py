"""Made-up updates."""

from dncfl.common.message import MessageFormat
from dncfl.common.quantiser import Levels
from dncfl.common.update import Part, QuantisedUpdate


def format_of(num_values: int, num_levels: int = 255) -> MessageFormat:
    """The format of messages with one bound for all of an update."""
    return MessageFormat(num_levels, (num_values,))


def update_of(levels: Levels, bound: float = 0.1, num_samples: int = 1) -> QuantisedUpdate:
    """An update with one bound for all of it."""
    return QuantisedUpdate(levels=levels, parts=(Part(levels.size, bound),), num_samples=num_samples)
