"""The commands that make and show folders of keys, and the options of the commands that use one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dncfl.common.config import MAX_CLIENTS
from dncfl.common.errors import ConfigError
from dncfl.common.keys import KEY_LIST, KeyList, add_node, new_folder, secret_path, title
from dncfl.common.security import Keys, NoKeys, Security
from dncfl.common.wire import SERVER_NAME

F = TypeVar("F", bound=Callable[..., Any])

folder_argument = click.argument("folder", type=click.Path(path_type=Path))


def security_options(command: F) -> F:
    """The options that say how the sockets of a command are protected."""
    keys = click.option(
        "--keys", metavar="FOLDER", type=click.Path(path_type=Path), help="folder of keys; `dncfl keys new` makes one"
    )
    insecure = click.option("--insecure", is_flag=True, help="listen beyond this machine without keys, open to anybody")
    return keys(insecure(command))


def server_security(num_clients: int, keys: Path | None, *, insecure: bool) -> Security:
    """The protection of a PS by these options. Raises ConfigError."""
    security = _security(SERVER_NAME, keys, insecure)
    if isinstance(security, Keys):
        security.require_nodes(num_clients)
    return security


def node_security(node: int, keys: Path | None, *, insecure: bool) -> Security:
    """The protection of a node by these options. Raises ConfigError."""
    return _security(str(node), keys, insecure)


def _security(name: str, keys: Path | None, insecure: bool) -> Security:
    if keys is None:
        return NoKeys(insecure)
    if insecure:
        raise ConfigError("--insecure is for sockets without keys: must not be given with --keys")
    return Keys.load(keys, name)


@click.group("keys")
def keys_group() -> None:
    """Make and show folders of keys, by which a PS and its nodes on several machines know each other."""


@keys_group.command()
@folder_argument
@click.option("--clients", metavar="M", type=click.IntRange(2, MAX_CLIENTS), required=True, help="number of nodes")
def new(folder: Path, clients: int) -> None:
    """Make FOLDER with a key pair for the PS and one for each of M nodes."""
    new_folder(folder, clients)
    click.echo(f"{folder} has keys for the PS and nodes 0..{clients - 1}")
    _explain()


@keys_group.command()
@folder_argument
@click.argument("node", type=click.IntRange(0, MAX_CLIENTS - 1))
@click.option("--public", metavar="KEY", help="the node's public key, in quotes, where its secret is on another machine")
@click.option("--replace", is_flag=True, help="allow that the node's secret in FOLDER is lost")
def add(folder: Path, node: int, public: str | None, replace: bool) -> None:
    """Give NODE a key in FOLDER: a new pair, unless its public key is given."""
    click.echo(f"node {node} now has the public key {add_node(folder, node, public, replace=replace)}")
    click.echo(f"all machines of a run need the new {KEY_LIST}")


@keys_group.command("list")
@folder_argument
def show(folder: Path) -> None:
    """Show who is listed in FOLDER, and whose secrets it holds."""
    listed = KeyList.load(folder)
    for name in (SERVER_NAME, *listed.nodes):
        secret = f"   {path.name}" if (path := secret_path(folder, name)).exists() else ""
        click.echo(f"{title(name):10}   {listed.of(name)}{secret}")
    _explain()


def _explain() -> None:
    click.echo(f"a node's machine needs {KEY_LIST} and its node-N.secret, the PS's {KEY_LIST} and server.secret; no others")
