"""Folders of keys: what is written, what is refused, and the words for it."""

import os
import stat
from pathlib import Path

import pytest
import zmq
from click.testing import CliRunner

from dncfl.common.errors import ConfigError, StorageError
from dncfl.common.keys import KeyList, add_node, new_folder
from dncfl.common.security import Keys
from dncfl.launch.keys import keys_group, server_security

KEY = zmq.curve_keypair()[0].decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder(tmp_path / "keys", 3)
    return tmp_path / "keys"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_has_a_list_and_secrets_for_their_owners_alone(folder: Path) -> None:
    secrets = sorted(path.name for path in folder.glob("*.secret"))
    assert secrets == ["node-0.secret", "node-1.secret", "node-2.secret", "server.secret"]
    assert {_mode(folder / name) for name in secrets} == {0o600}
    assert _mode(folder) == 0o700
    listed = KeyList.load(folder)
    assert listed.nodes == ["0", "1", "2"]
    assert len(set(listed.public.values())) == 4
    for name in ("ps", 0, 1, 2):
        keys = Keys.load(folder, name)
        assert zmq.curve_public(keys.secret.encode()).decode() == listed.of(str(name))
        assert keys.secret not in repr(keys)
        assert keys.secret not in (folder / "keys.toml").read_text()


def test_secrets_are_never_readable_for_others_not_even_under_an_open_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        new_folder(tmp_path / "keys", 2)
    finally:
        os.umask(before)
    assert _mode(tmp_path / "keys" / "server.secret") == 0o600


def test_a_node_needs_the_list_and_its_own_secret_only(folder: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    machine.mkdir()
    for name in ("keys.toml", "node-1.secret"):
        (folder / name).rename(machine / name)
    assert Keys.load(machine, 1).name == "1"
    with pytest.raises(ConfigError, match=r"cannot read .*server\.secret, the secret key of the PS: No such file"):
        Keys.load(machine, "ps")


def test_nothing_is_overwritten(folder: Path) -> None:
    before = {path: path.read_text() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match=r"exists already: must be a new folder"):
        new_folder(folder, 5)
    with pytest.raises(ConfigError, match=r"node-1\.secret exists already: it is replaced only by --replace"):
        add_node(folder, 1)
    with pytest.raises(ConfigError, match=r"node-1\.secret exists already"):
        add_node(folder, 1, KEY)
    for public, reason in (("short", "must be 40 characters of Z85"), (KeyList.load(folder).of("2"), "have the same key")):
        with pytest.raises(ConfigError, match=reason):
            add_node(folder, 1, public, replace=True)
    assert before == {path: path.read_text() for path in folder.iterdir()}


def test_nodes_are_added_and_get_other_keys(folder: Path) -> None:
    old = KeyList.load(folder)
    assert add_node(folder, 11) == KeyList.load(folder).of("11")
    assert add_node(folder, 4, KEY) == KEY
    assert not (folder / "node-4.secret").exists()
    assert add_node(folder, 0, replace=True) != old.of("0")
    assert _mode(folder / "node-0.secret") == 0o600
    listed = KeyList.load(folder)
    assert listed.nodes == ["0", "1", "2", "4", "11"]
    assert Keys.load(folder, 0).listed == listed
    assert listed.of("1") == old.of("1")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_secret_that_others_may_use_is_refused(folder: Path, mode: int) -> None:
    path = folder / "node-0.secret"
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"has mode 0{mode:o}, .* must be 0600, by chmod 600 {path}"):
        Keys.load(folder, 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("server = ", r"keys\.toml is no TOML file"),
        ("", r"keys\.toml: must hold server = \"KEY\" and a table \[nodes\]"),
        (f'server = "{KEY}"', "and a table"),
        (f'server = "{KEY}"\nnodes = 3', "and a table"),
        (f'server = "{KEY}"\nother = 1\n[nodes]\n', "and nothing else"),
        (f'server = "{KEY[:-1]}"\n[nodes]\n', r"the key of the PS is '.{39}': must be 40 characters of Z85"),
        (f'server = "{KEY[:-1]}é"\n[nodes]\n', "must be 40 characters of Z85"),
        ("server = 5\n[nodes]\n", "the key of the PS is 5"),
        (f'server = "{KEY}"\n[nodes]\n0 = "{"~" * 40}"', "the key of node 0 is '~+': must be"),
        (f'server = "{KEY}"\n[nodes]\n0 = "{KEY}"', "the PS and node 0 have the same key"),
        (f'server = "{KEY}"\n[nodes]\n01 = "{KEY}"', "there is no node '01': must be a number from 0 to 254"),
        (f'server = "{KEY}"\n[nodes]\n255 = "{KEY}"', "there is no node '255'"),
    ],
)
def test_a_list_that_is_none(folder: Path, text: str, reason: str) -> None:
    (folder / "keys.toml").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        Keys.load(folder, 0)


def test_what_is_missing_or_does_not_fit_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere/keys\.toml: No such file .* `dncfl keys new` makes"):
        Keys.load(tmp_path / "nowhere", 0)
    with pytest.raises(ConfigError, match=r"keys\.toml lists no key for node 3; `dncfl keys add` adds one"):
        server_security(4, folder, insecure=False)
    with pytest.raises(ConfigError, match="--insecure is for sockets without keys"):
        server_security(3, folder, insecure=True)
    (folder / "node-0.secret").write_text("what?")
    with pytest.raises(ConfigError, match=r"node-0\.secret holds no secret key: must be one line of 40 characters"):
        Keys.load(folder, 0)
    (folder / "node-0.secret").write_bytes(b"\xff" * 40)
    with pytest.raises(ConfigError, match=r"node-0\.secret holds no secret key"):
        Keys.load(folder, 0)
    (folder / "node-1.secret").rename(folder / "node-0.secret")
    with pytest.raises(ConfigError, match=r"node-0\.secret does not belong to the key of node 0 in .*keys\.toml"):
        Keys.load(folder, 0)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"the folder .* cannot be written: Not a directory"):
        new_folder(tmp_path / "file" / "keys", 2)


def test_the_commands(tmp_path: Path) -> None:
    folder = str(tmp_path / "keys")

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(keys_group, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "has keys for the PS and nodes 0..1\n" in call("new", folder, "--clients", "2")
    assert f"node 7 now has the public key {KEY}\n" in call("add", folder, "7", "--public", KEY)
    listed = call("list", folder).splitlines()
    assert [line.split()[-1] for line in listed[:3]] == ["server.secret", "node-0.secret", "node-1.secret"]
    assert listed[3].split() == ["node", "7", KEY]
    assert "a node's machine needs keys.toml and its node-N.secret" in listed[4]
