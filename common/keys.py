"""Key files: who may take part in a run, and the secret that proves it.

A folder of keys holds

    keys.toml        the list: the public key of the PS and of every node that may take part
    server.secret    the secret key of the PS, needed where `dncfl server` runs
    node-N.secret    the secret key of node N, needed where `dncfl node N` runs

A key is 40 characters of Z85, as ZeroMQ writes CURVE keys. The list is no secret, but whoever can change it decides who
takes part:

    server = "…"

    [nodes]
    0 = "…"
    1 = "…"
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tomli_w
import zmq

from dncfl.common import storage
from dncfl.common.config import MAX_CLIENTS
from dncfl.common.errors import ConfigError, StorageError
from dncfl.common.wire import SERVER_NAME

KEY_LIST = "keys.toml"
KEY_LENGTH = 40


@dataclass(frozen=True)
class KeyList:
    """The public keys of all that may take part, by name: a node's number, or `SERVER_NAME`."""

    public: Mapping[str, str]

    def __post_init__(self) -> None:
        """Raises ConfigError for what is no key, and for a key that two share: a key says who its owner is."""
        owners: dict[str, str] = {}
        for name, key in self.public.items():
            if not isinstance(key, str) or _public_of(key) is None:
                raise ConfigError(f"the key of {title(name)} is {key!r}: must be {KEY_LENGTH} characters of Z85")
            if key in owners:
                raise ConfigError(f"{title(owners[key])} and {title(name)} have the same key: each must have its own")
            owners[key] = name

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The list in a folder. Raises ConfigError when it is missing or is not written as it should be."""
        path = folder / KEY_LIST
        try:
            entries = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; `dncfl keys new` makes a folder of keys") from None
        except ValueError as error:
            raise ConfigError(f"{path} is no TOML file: {error}") from None
        try:
            return cls(_checked(entries))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def save(self, folder: Path) -> None:
        """Write the list, in the place of one that is there. Raises StorageError."""
        nodes = {name: self.public[name] for name in self.nodes}
        entries: dict[str, object] = {"server": self.public[SERVER_NAME], "nodes": nodes}
        path = folder / KEY_LIST
        with storage.writing(f"the list of keys {path}"):
            storage.replace(path, lambda aside: aside.write_text(tomli_w.dumps(entries)))

    @property
    def nodes(self) -> list[str]:
        """The names of the listed nodes, in the order of their numbers."""
        return sorted(self.public.keys() - {SERVER_NAME}, key=int)

    def of(self, name: str) -> str:
        """A public key. Raises ConfigError when none is listed."""
        if name not in self.public:
            raise ConfigError(f"{KEY_LIST} lists no key for {title(name)}; `dncfl keys add` adds one")
        return self.public[name]

    def with_key(self, name: str, public: str) -> Self:
        """The same list, but for one key. Raises ConfigError."""
        return type(self)({**self.public, name: public})


def title(name: str) -> str:
    """What a name stands for, in words."""
    return "the PS" if name == SERVER_NAME else f"node {name}"


def secret_path(folder: Path, name: str) -> Path:
    """Where a secret lies in a folder of keys."""
    return folder / ("server.secret" if name == SERVER_NAME else f"node-{name}.secret")


def new_folder(folder: Path, num_clients: int) -> None:
    """Make a folder with keys for the PS and its nodes. Raises ConfigError where there is one, StorageError."""
    if folder.exists():
        raise ConfigError(f"{folder} exists already: must be a new folder; `dncfl keys add` adds to an old one")
    with storage.writing(f"the folder {folder}"):
        folder.mkdir(mode=0o700, parents=True)
    names = [SERVER_NAME, *map(str, range(num_clients))]
    KeyList({name: _new_pair(folder, name) for name in names}).save(folder)


def add_node(folder: Path, node: int, public: str | None = None, *, replace: bool = False) -> str:
    """List a node's public key, in the place of an old one; makes a pair unless it is given. Returns the public key.

    Raises ConfigError when a secret is here and may not be replaced, and for what is no key or somebody else's;
    StorageError.
    """
    listed, name = KeyList.load(folder), str(node)
    path = secret_path(folder, name)
    if path.exists() and not replace:
        raise ConfigError(f"{path} exists already: it is replaced only by --replace")
    if public is not None:
        listed = listed.with_key(name, public)  # before the secret goes: this may be no key
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error.strerror}") from None
    if public is None:
        public = _new_pair(folder, name)
        listed = listed.with_key(name, public)
    listed.save(folder)
    return public


def load_secret(folder: Path, name: str, listed: KeyList) -> str:
    """The secret key of `name`, which must belong to its listed public key and be kept from others. Raises ConfigError."""
    path = secret_path(folder, name)
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path} has mode {mode:04o}, so that others may use it: must be 0600, by chmod 600 {path}")
            secret = file.read().strip()
    except OSError as error:
        raise ConfigError(f"cannot read {path}, the secret key of {title(name)}: {error.strerror}") from None
    except UnicodeDecodeError:
        secret = ""
    public = _public_of(secret)
    if public is None:
        raise ConfigError(f"{path} holds no secret key: must be one line of {KEY_LENGTH} characters of Z85")
    if public != listed.of(name):
        raise ConfigError(f"{path} does not belong to the key of {title(name)} in {folder / KEY_LIST}: one of the two is old")
    return secret


def _checked(entries: Mapping[str, Any]) -> dict[str, str]:
    """The keys of a list by name; only what the list says, not whether it holds keys. Raises ConfigError."""
    nodes = entries.get("nodes")
    if entries.keys() != {"server", "nodes"} or not isinstance(nodes, dict):
        raise ConfigError('must hold server = "KEY" and a table [nodes] of NUMBER = "KEY", and nothing else')
    for name in nodes.keys() - {str(node) for node in range(MAX_CLIENTS)}:
        raise ConfigError(f"there is no node {name!r}: must be a number from 0 to {MAX_CLIENTS - 1}")
    return {SERVER_NAME: entries["server"], **nodes}


def _new_pair(folder: Path, name: str) -> str:
    """Make a key pair and write its secret where there is none yet; returns the public key. Raises StorageError."""
    public, secret = (key.decode() for key in zmq.curve_keypair())
    path = secret_path(folder, name)
    made_here = os.O_WRONLY | os.O_CREAT | os.O_EXCL  # and never readable for others, not even for a moment
    with storage.writing(f"the secret {path}"), os.fdopen(os.open(path, made_here, 0o600), "w") as file:
        file.write(f"{secret}\n")
    return public


def _public_of(secret: str) -> str | None:
    """The public key that belongs to a secret one; None when this is no key, be it public or secret: all look alike."""
    try:
        encoded = secret.encode("ascii")
        return zmq.curve_public(encoded).decode() if len(encoded) == KEY_LENGTH else None
    except (UnicodeEncodeError, ValueError, zmq.ZMQError):
        return None
