"""When an attempt succeeds, and when communication is repeated (section III-A of the letter, with the rank put right)."""

from collections.abc import Collection

from dncfl.common.config import Config


def must_repeat(config: Config, attempt: int, involved: Collection[int], recoverable: Collection[int]) -> bool:
    """Whether the PS asks for another attempt.

    With `all-heard`, an attempt succeeds when something arrived and every message that takes part in an arrived equation
    is recoverable. After `max_attempts`, with `partial`, and for methods that never repeat, the PS takes what it has.
    """
    return may_repeat(config, attempt) and (not involved or set(involved) != set(recoverable))


def may_repeat(config: Config, attempt: int) -> bool:
    """Whether there may be another attempt after this one."""
    return config.method_traits.repeats and config.decode != "partial" and attempt < config.max_attempts


def needs_relays(arrived: Collection[int], recoverable: Collection[int]) -> bool:
    """Whether another relay slot may still help: not once every message that arrived anywhere is recoverable.

    `arrived`: the messages that some node holds, or that take part in an equation; with live nodes these are all. Early stop
    goes by this alone. So it never changes what is recovered: all relay slots are sent unless nothing is missing.
    """
    return not set(arrived) <= set(recoverable)
