"""Files that cannot be written, in words for people."""

from collections.abc import Iterator
from contextlib import contextmanager

from dncfl.common.errors import StorageError


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise StorageError for what the system refuses; `what` is written, as in "the picture run.png"."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} cannot be written: {error.strerror or error}") from error
