"""Folders where nothing is overwritten, files that are whole at any time, and what cannot be written, in words for people."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dncfl.common.errors import StorageError

ASIDE = ".new"
"""What a name ends with while it is not whole."""


def make_place(folder: Path, names: Sequence[str]) -> None:
    """Make a folder for files of these names, before the work that they come from. Raises StorageError.

    So it is known beforehand that there is a folder, and that none of the files would replace another.
    """
    with writing(f"the folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (folder / name).exists():
            raise StorageError(f"{folder / name} exists: nothing is overwritten; name another folder by --out")


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """A new edition of a file, by a function that writes it to a path; the old one stays until this one is on disk."""
    aside = path.with_name(path.name + ASIDE)
    write(aside)
    sync(aside)
    aside.replace(path)
    sync(path.parent)


def append(path: Path, content: bytes) -> None:
    """Put all of this on disk at the end of a file; or nothing, where the system refuses a part of it."""
    with path.open("ab", buffering=0) as file:
        size, rest = os.fstat(file.fileno()).st_size, memoryview(content)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # the first reason is the one to tell
                file.truncate(size)
            raise


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise StorageError for what the system refuses; `what` is written, as in "the picture run.png"."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} cannot be written: {error.strerror or error}") from error
