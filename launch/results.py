"""Folders that commands write figures to, of which nothing is ever overwritten."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dncfl.common.errors import StorageError


def make_place(folder: Path, names: Sequence[str]) -> None:
    """Make a folder for files of these names, before the work that they come from. Raises StorageError.

    So it is known beforehand that there is a folder, and that none of the files would replace another.
    """
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / name).exists():
            raise StorageError(f"{folder / name} exists: nothing is overwritten; name another folder by --out")


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raise StorageError for what cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
