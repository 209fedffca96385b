"""The primes that fields are made over."""

from itertools import count
from math import isqrt

MAX_PRIME = 65_521
"""The largest prime whose symbols fit in 16 bits."""

MIN_FIELD = 257
"""Every byte is a symbol, so that side information needs no conversion."""


def smallest_prime(minimum: int) -> int:
    """The smallest prime >= minimum."""
    return next(p for p in count(minimum) if is_prime(p))


def is_prime(p: int) -> bool:
    """Whether p has no divisor but 1 and itself; for the small p here, sooner tried than a library is imported."""
    return p >= 2 and all(p % divisor for divisor in range(2, isqrt(p) + 1))


def require_prime(p: int) -> None:
    """Raise ValueError unless p is a prime between 2 and 65,521."""
    if not 2 <= p <= MAX_PRIME or not is_prime(p):
        raise ValueError(f"p = {p}: must be a prime between 2 and {MAX_PRIME}")
