"""Logged lines look like those that the commands print."""

import re
import subprocess
import sys

PROGRAM = """
import logging
from dncfl.common.log import log_to_stderr
log_to_stderr("info")
for level in ("debug", "info", "warning", "error"):
    getattr(logging.getLogger("dncfl.any"), level)("node %d is here", 3)
logging.getLogger("matplotlib").info("fonts")
"""


def test_what_is_said_in_passing_stands_alone_and_the_rest_names_its_level() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    times, lines = zip(*(line.split(" ", 1) for line in done.stderr.splitlines()), strict=True)
    assert lines == ("node 3 is here", "warning: node 3 is here", "error: node 3 is here")
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", time) for time in times)
