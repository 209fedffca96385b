"""What a person sees of a run."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from dncfl.common.config import load_config
from dncfl.launch.display import Display
from tests.unit.test_carry_out import record


def _seen(**settings: object) -> list[str]:
    """The lines about three rounds with 4, 6 and 30 % of their values clipped."""
    out = StringIO()
    with Display(load_config(None, settings), Console(file=out, width=200)) as display:
        for round, share in enumerate((0.04, 0.06, 0.3), start=1):
            display.round_done(replace(record(round), clip_fraction=share))
    return out.getvalue().splitlines()


def test_heavy_clipping_is_told_once() -> None:
    told = "warning: 6% of the updates' values were clipped at ±0.02 in round 2; "
    told += "--bound per-tensor clips none; see also clip_fraction and --lr"
    lines = _seen(bound=0.02)
    assert len(lines) == 2 + 3 + 1
    assert lines[4] == told
