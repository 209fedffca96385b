"""Options in the words of the configuration."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from dncfl.common.config import Config

F = TypeVar("F", bound=Callable[..., Any])

METAVARS: Mapping[object, str] = {int: "INTEGER", float: "NUMBER"}

config_argument = click.argument("config_file", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))


def config_options(command: F) -> F:
    """One option per field of the configuration, in the same words."""
    return setting_options(*Config.model_fields)(command)


def setting_options(*names: str) -> Callable[[F], F]:
    """An option for each of some fields of the configuration."""

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = _setting_option(name)(command)
        return command

    return decorate


def _setting_option(name: str) -> Callable[[F], F]:
    field = Config.model_fields[name]
    flag = "--" + (field.alias or name).replace("_", "-")
    default = None if field.default_factory or isinstance(field.default, bool) else field.default
    help_text = f"{field.description}" + (f" [{default}]" if default not in (None, ()) else "")
    if name == "faults":
        return click.option("--fault", name, metavar="FAULT", multiple=True, help=help_text)
    if field.annotation is bool:
        switch = f"{flag}/--no-{flag.removeprefix('--')}" if field.default else flag
        help_text += " [on]" if field.default else ""
        return click.option(switch, field.alias or name, is_flag=True, default=None, help=help_text)
    is_choice = get_origin(field.annotation) is Literal
    metavar = "|".join(get_args(field.annotation)) if is_choice else METAVARS.get(field.annotation, "VALUE")
    return click.option(flag, name, metavar=metavar, help=help_text)
