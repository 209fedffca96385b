"""The console script `dncfl`, also as `python -m dncfl.launch`.

Every error that is the user's ends in its own words and an exit code of its own. Signals are caught before the slow
imports, so that Ctrl-C is answered at any time.
"""

import gc
import sys

from dncfl.common.errors import DncflError
from dncfl.common.running import Interrupted, gone_at_signal, interrupted_by_signal


def main() -> None:
    """Run the command line and exit."""
    try:
        with interrupted_by_signal():
            exit_code = _run()
    except Interrupted as interrupt:
        exit_code = _explain(str(interrupt), interrupt.exit_code)
    gc.freeze()  # or the interpreter would spend a second collecting what torch's import left, only to exit
    sys.exit(exit_code)


def _run() -> int:
    with gone_at_signal():
        import click

        from dncfl.launch.cli import cli

    try:
        cli(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        return _explain(error.format_message(), error.exit_code)
    except click.Abort:
        return _explain("aborted", 1)
    except DncflError as error:
        return _explain(str(error), error.exit_code)
    return 0


def _explain(message: str, exit_code: int) -> int:
    for line in message.splitlines():
        print(f"dncfl: {line}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    main()
