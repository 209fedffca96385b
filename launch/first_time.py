"""What a command says the first time, when the codec has yet to be compiled for this machine."""

import os
from pathlib import Path

import click

import dncfl.common

COMPILED = "kernels.*.nbi"
"""What numba keeps of the codec, beside it where it may write there."""


def tell_if_it_compiles(folder: Path = Path(dncfl.common.__path__[0])) -> None:
    """Say on stderr that compiling takes a while, where nothing is kept yet in the folder of the codec."""
    kept = folder / "__pycache__"
    if os.access(folder, os.W_OK) and "NUMBA_CACHE_DIR" not in os.environ and not list(kept.glob(COMPILED)):
        click.echo("compiling the codec for this processor, once: some 20 s", err=True)
