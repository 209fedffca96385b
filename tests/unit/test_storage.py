"""Files that are whole at any time, also where the system refuses to write."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dncfl.common.storage import append, replace


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """The system writes what fits and refuses the rest, as on a disk that is full."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_does_not_fit_leaves_no_part_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append(path, b"first\n")
    with _files_of_at_most(10):
        with path.open("ab", buffering=0) as file:
            assert file.write(b"second\n") == 4, "the system must write a part"
            file.truncate(6)
        with pytest.raises(OSError, match="File too large"):
            append(path, b"second\n")
    assert path.read_bytes() == b"first\n"
    append(path, b"second\n")
    assert path.read_bytes() == b"first\nsecond\n"


def test_the_old_edition_stays_until_there_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    replace(path, lambda aside: aside.write_bytes(b"old"))
    with _files_of_at_most(2), pytest.raises(OSError, match="File too large"):
        replace(path, lambda aside: aside.write_bytes(b"new"))
    assert path.read_bytes() == b"old"
    replace(path, lambda aside: aside.write_bytes(b"new"))
    assert path.read_bytes() == b"new"
