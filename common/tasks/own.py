"""What users bring: functions of their own, named as `package.module:function`, for a model or a data set."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from traceback import format_exc
from typing import Any

from dncfl.common.errors import ConfigError, DncflError


def is_own(name: str) -> bool:
    """Whether a name has the form package.module:function."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(map(str.isidentifier, module.split(".")))


def imported(what: str, name: str, told_as: type[DncflError]) -> Callable[..., Any]:
    """The function of a name, found from the working folder too; `what` it is for, as in messages.

    Raises ConfigError when there is none, and `told_as` for what its module raises.
    """
    module, _, function = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        with errors_of_own(told_as, f"importing the {what} {name}", but=ImportError):
            found = importlib.import_module(module)
        made: Callable[..., Any] = getattr(found, function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{what} = {name}: {error} (looked for in {here} and where Python finds its modules)") from error
    return made


@contextmanager
def errors_of_own(told_as: type[DncflError], where: str, but: type[Exception] = DncflError) -> Iterator[None]:
    """Turn what a user's code raises, but for one kind, into an error of ours with its place and traceback.

    What it prints goes to stderr: on stdout a program may wait for the outcome as JSON.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except but:
        raise
    except Exception as error:
        raise told_as(f"{where} failed: {type(error).__name__}: {error}\n{format_exc()[-4000:]}") from error
