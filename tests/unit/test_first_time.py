"""What a command does before there is anything to compute."""

import subprocess
import sys
from pathlib import Path

import pytest

import dncfl.common.kernels
from dncfl.launch.first_time import tell_if_it_compiles


def test_who_asks_for_help_does_not_wait_for_a_compiler() -> None:
    slow = ("numba", "torch", "polars", "matplotlib")
    code = f"import sys, dncfl.launch.cli; sys.exit(any(name in sys.modules for name in {slow}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_compiling_is_told_where_nothing_is_kept_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    tell_if_it_compiles(tmp_path)
    assert capsys.readouterr().err == "compiling the codec for this processor, once: some 20 s\n"
    tell_if_it_compiles(Path(dncfl.common.kernels.__file__).parent)  # which is compiled since it has been imported
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    tell_if_it_compiles(tmp_path)  # what is kept lies elsewhere
    assert capsys.readouterr().err == ""
