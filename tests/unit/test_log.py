"""Logged lines look like those that the commands print."""

import subprocess
import sys

PROGRAM = """
import logging
from dncfl.common.log import log_to_stderr
log_to_stderr("info")
for level in ("debug", "info", "warning", "error"):
    getattr(logging.getLogger("any"), level)("node %d is here", 3)
"""


def test_what_is_said_in_passing_stands_alone_and_the_rest_names_its_level() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert done.stderr == "node 3 is here\nwarning: node 3 is here\nerror: node 3 is here\n"
