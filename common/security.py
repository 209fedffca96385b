"""Who may connect: sockets without keys, for one machine, and sockets with CURVE keys, for a network.

With keys, who binds is the CURVE server and who connects is its client. ZeroMQ asks the authenticator about each client
before a byte of a message passes; without an authenticator, or when it fails, nobody enters.

    PS ROUTER, PS XPUB     admit the listed nodes
    node XPUB              admits the PS and the other listed nodes
    DEALER and SUB         enter only where the listed key of the one they look for is at home

Every message that a binding socket receives comes with the name of its sender, a node's number or the PS, as its key
proves it. A SUB socket is told no such thing: it knows that a transmission comes from a listed node's own address, but
takes the sender's number from the header.
"""

import ipaddress
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from dncfl.common.errors import ConfigError
from dncfl.common.keys import KeyList, load_secret

log = logging.getLogger(__name__)

DOMAIN = "dncfl"

MOST_STRANGERS = 100
"""Keys that are not in the list and are told, each once."""

Context = zmq.Context[zmq.Socket[bytes]]
RawSocket = zmq.Socket[bytes]


class Security(ABC):
    """How the sockets of one process are protected."""

    uses_keys: bool

    @contextmanager
    def context(self) -> Iterator[Context]:
        """A ZeroMQ context for these sockets; all of them are closed at the end."""
        context: Context = zmq.Context()
        try:
            yield context
        finally:
            context.destroy()

    @abstractmethod
    def before_binding(self, socket: RawSocket, host: str) -> None:
        """Prepare a socket that will listen at a local address. Raises ConfigError when that is not allowed."""

    @abstractmethod
    def before_connecting(self, socket: RawSocket, peer: int | str) -> None:
        """Prepare a socket for its next connection, which is to reach node `peer` or the PS. Raises ConfigError."""

    @abstractmethod
    def sender(self, frame: zmq.Frame) -> str | None:
        """Whose key a frame came under that a binding socket received; None when nobody can tell."""


@dataclass(frozen=True)
class NoKeys(Security):
    """Sockets that anybody may connect to; so they listen on this machine only, unless `insecure`."""

    insecure: bool = False
    uses_keys = False

    def before_binding(self, socket: RawSocket, host: str) -> None:
        if not self.insecure and not is_loopback(host):
            raise ConfigError(
                f"anybody who reaches {host} could take part: give --keys FOLDER (`dncfl keys new` makes one), "
                "or --insecure on a network where all are trusted"
            )

    def before_connecting(self, socket: RawSocket, peer: int | str) -> None:
        pass

    def sender(self, frame: zmq.Frame) -> str | None:
        return None


NO_KEYS = NoKeys()
"""For sockets on this machine."""


@dataclass(frozen=True)
class Keys(Security):
    """Sockets that admit listed keys only, and connect to listed keys only."""

    name: str
    listed: KeyList
    secret: str = field(repr=False)
    uses_keys = True

    @classmethod
    def load(cls, folder: Path, name: int | str) -> Self:
        """The keys of node `name`, or of the PS, in a folder. Raises ConfigError."""
        listed = KeyList.load(folder)
        return cls(str(name), listed, load_secret(folder, str(name), listed))

    def require_nodes(self, count: int) -> None:
        """Raise ConfigError unless each of the nodes 0..count-1 has a key."""
        for node in range(count):
            self.listed.of(str(node))

    @contextmanager
    def context(self) -> Iterator[Context]:
        with super().context() as context:
            doorkeeper = Doorkeeper(context, self)
            doorkeeper.start()  # before any socket is bound
            try:
                yield context
            finally:
                doorkeeper.stop()

    def before_binding(self, socket: RawSocket, host: str) -> None:
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # or all would enter when there is no authenticator

    def before_connecting(self, socket: RawSocket, peer: int | str) -> None:
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.listed.of(self.name).encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.listed.of(str(peer)).encode())  # of connections from now on

    def sender(self, frame: zmq.Frame) -> str | None:
        try:
            return str(frame.get("User-Id"))
        except zmq.ZMQError:  # an XPUB itself withdraws the subscriptions of a connection that ended
            return None


class Doorkeeper(ThreadAuthenticator):
    """Admits the keys on a list but its owner's own, each under its name, from a thread of its own."""

    def __init__(self, context: Context, keys: Keys) -> None:
        super().__init__(context)
        self._names = {key.encode(): name for name, key in keys.listed.public.items() if name != keys.name}
        self._strangers: set[bytes] = set()
        self.configure_curve_callback(DOMAIN, self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a public key may enter."""
        if key in self._names:
            return True
        if key not in self._strangers and len(self._strangers) < MOST_STRANGERS:
            self._strangers.add(key)
            log.warning("somebody was not admitted: no node of the list of keys has the key %s", key.decode())
        return False

    def curve_user_id(self, client_public_key: bytes) -> str:
        return self._names[z85.encode(client_public_key)]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; names other than localhost count as reached from elsewhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
