"""The configuration: defaults, files, overrides, and a clear word for every mistake."""

from pathlib import Path

import numpy as np
import pytest

from dncfl.common.config import Config, load_config
from dncfl.common.errors import ConfigError
from dncfl.common.tasks.partition import ClassesPartition


def test_defaults_are_the_letters_setting() -> None:
    config = load_config(None, {})
    assert (config.clients, config.rounds, config.method, config.channel) == (10, 20, "dnc", "rayleigh")
    assert (config.field, config.relay_slots, config.levels, config.bound) == (257, 9, 255, 0.1)
    assert (config.local_epochs, config.lr, config.momentum, config.batch_size) == (5, 0.01, 0.5, 32)
    assert load_config(None, {"dataset": "mnist"}).batch_size == 1024


def test_classes_per_client_are_limited_by_the_data_where_these_are_known() -> None:
    for dataset in ("digits", "mnist"):
        with pytest.raises(ConfigError, match="partition = classes:11: classes per client must be a whole number from 1 to 10"):
            load_config(None, {"dataset": dataset, "partition": "classes:11"})
    assert load_config(None, {"dataset": "mine:letters", "partition": "classes:11"}).partition_scheme == ClassesPartition(11)
    with pytest.raises(ConfigError, match="partition = classes:0: classes per client must be a whole number of at least 1"):
        load_config(None, {"dataset": "mine:letters", "partition": "classes:0"})


def test_what_is_not_given_follows_from_what_is() -> None:
    assert load_config(None, {"clients": "20"}).field == 401
    assert load_config(None, {"levels": 1000}).field == 1009
    assert load_config(None, {"pe": 0.3}).channel == "bernoulli"
    assert load_config(None, {"trace": "trace.jsonl"}).channel == "trace"
    assert load_config(None, {"model": "mine:model"}).bound == "per-tensor"


def test_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('clients = 4\nrelay-slots = 1\npartition = "classes:2"\n')
    config = load_config(path, {"clients": "5", "lr": "0.1"})
    assert (config.clients, config.relay_slots, config.partition, config.lr) == (5, 1, "classes:2", 0.1)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"pe": 0.3}, {"pe": 0.3, "channel": "bernoulli"}),
        ({"snr": 5}, {"snr": 5.0, "channel": "rayleigh"}),
        ({"clients": 20}, {"field": 401, "relay_slots": 19}),
        ({"clients": 5}, {"field": 257, "relay_slots": 4}),
        ({"dataset": "mnist"}, {"batch_size": 1024}),
        ({"model": "mine:model"}, {"bound": "per-tensor"}),
        ({"json": True}, {"json_output": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("origin", [{}, {"pe": 0.2}, {"json": False}], ids=str)
def test_what_followed_in_a_written_configuration_follows_again(
    tmp_path: Path, origin: dict[str, object], overrides: dict[str, object], expected: dict[str, object]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(load_config(None, origin).to_toml())
    config = load_config(path, overrides)
    assert {name: getattr(config, name) for name in expected} == expected


def test_what_was_chosen_stays_chosen(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(load_config(None, {"relay_slots": 2, "batch_size": 16}).to_toml())
    config = load_config(path, {"clients": 5, "dataset": "mnist"})
    assert (config.relay_slots, config.batch_size) == (2, 16)
    with pytest.raises(ConfigError, match="relay_slots = 2: must be at most M-1 = 1"):
        load_config(path, {"clients": 2})


def test_nodes_get_the_whole_configuration() -> None:
    for settings in ({}, {"pe": 0.4, "clients": 3}, {"clients": 2, "snr": {"nodes": [[1, 2], [3, 4]], "server": [5, 6]}}):
        config = load_config(None, settings)
        assert Config.model_validate_json(config.to_json()) == config


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pe": 0.25, "method": "anonymous", "anonymous_variant": "updates"},
        {"clients": 2, "pe": {"nodes": [[0, 0.1], [0.2, 0]], "server": [0.3, 1.0]}, "bound": "adaptive"},
        {"clients": 3, "snr": {"nodes": [[1.0] * 3] * 3, "server": [1.0, 2.0, 5.0]}, "out": "somewhere", "json": True},
    ],
    ids=str,
)
def test_the_written_configuration_runs_again(settings: dict[str, object], tmp_path: Path) -> None:
    config = load_config(None, settings)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert load_config(path, {}) == config.model_copy(update={"out": None, "json_output": False})


def test_a_value_per_link() -> None:
    text = '{"nodes": [[0, 0.1], [0.2, 0]], "server": [0.3, 0.4]}'
    config = load_config(None, {"clients": 2, "pe": text})
    assert np.array_equal(config.per_link("pe"), [[0, 0.1, 0.3], [0.2, 0, 0.4]])
    assert np.array_equal(config.per_link("snr"), np.full((2, 3), 3.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clients": 1}, "clients = 1: must be at least 2"),
        ({"clients": "1"}, "clients = 1: must be at least 2"),
        ({"clients": 256}, "clients = 256: must be at most 255"),
        ({"clients": "ten"}, "clients = ten: must be a whole number"),
        ({"rounds": 2.5}, "rounds = 2.5: must be a whole number"),
        ({"batch_size": 0}, "batch_size = 0: must be at least 1"),
        ({"lr": 0}, "lr = 0: must be greater than 0"),
        ({"lr": "nan"}, "lr = nan: must be a finite number"),
        ({"momentum": 1}, "momentum = 1: must be less than 1"),
        (
            {"method": "fedavg"},
            "method = fedavg: must be one of 'dnc', 'repetition', 'colrel', 'qfl', 'nonanonymous' or 'anonymous'",
        ),
        ({"partition": "classes:11"}, "classes per client must be a whole number from 1 to 10"),
        ({"partition": "classes:0"}, "classes per client must be a whole number from 1 to 10"),
        ({"partition": "classes"}, "classes per client must be a whole number from 1 to 10"),
        ({"partition": "dirichlet:-1"}, "Dirichlet parameter must be a positive number"),
        ({"partition": "sorted"}, "partition = sorted: must be iid, classes:K or dirichlet:ALPHA"),
        ({"field": 251}, "field = 251: too small for 10 clients and 255 levels; must be a prime of at least"),
        ({"field": 400, "clients": 3}, "field = 400: must be a prime"),
        ({"clients": 20, "field": 257}, "too small for 20 clients"),
        ({"relay_slots": 10}, "relay_slots = 10: must be at most M-1 = 9"),
        ({"pe": 1.01}, "pe = 1.01: must lie in [0, 1]"),
        ({"pe": -0.1}, "pe = -0.1: must lie in [0, 1]"),
        ({"pe": "much"}, "pe = much: must be a number, or a value per link"),
        ({"pe": {"nodes": [[0]], "server": [0.5]}}, "pe: must give 10 rows of 10"),
        ({"clients": 2, "pe": {"nodes": [[0, 2], [0, 0]], "server": [0, 0]}}, "pe = 2: must lie in [0, 1]"),
        ({"snr": 0}, "snr = 0: must be positive"),
        ({"sigma2": -1}, "sigma2 = -1: must be positive"),
        ({"bound": 0}, "bound = 0: must be a positive number of at most 1e+30, 'adaptive' or 'per-tensor'"),
        ({"bound": "wide"}, "bound = wide: must be a positive number of at most 1e+30, 'adaptive' or 'per-tensor'"),
        ({"pe": 0.3, "snr": 5}, "snr = 5.0: has no effect beside pe; give the one or the other"),
        ({"snr": float("inf")}, "snr = inf: must be a finite number"),
        ({"bound": 1e31}, "bound = 1e+31: must be a positive number of at most 1e+30, 'adaptive' or 'per-tensor'"),
        ({"channel": "bernoulli"}, "channel = 'bernoulli': needs pe"),
        ({"channel": "rayleigh", "pe": 0.1}, "channel = 'rayleigh': pe is given"),
        ({"channel": "trace"}, "the trace channel and trace = FILE need each other"),
        ({"model": "os.system"}, "must be paper-cnn or package.module:function"),
        ({"cliens": 4}, "cliens: unknown setting; did you mean clients?"),
        ({"zzz": 4}, "zzz: unknown setting; known are clients, rounds"),
        ({"seed": -1}, "seed = -1: must be at least 0"),
    ],
    ids=str,
)
def test_mistakes_are_named_with_their_value_and_what_is_right(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, settings)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, {"clients": 1, "lr": -1, "rouds": 3})
    assert sorted(line.split()[0] for line in str(error.value).splitlines()) == ["clients", "lr", "rouds:"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"clients = [", "not valid TOML"), (b"\xff", "not valid TOML"), (None, "cannot be read")]
)
def test_broken_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(path, {})


def test_a_file_has_numbers_and_switches_and_no_texts_of_them(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        'clients = "4"\nearly_stop = "no"\nlr = "0.1"\nmin_nodes = true\njson = false\nbound = 0.2\nsnr = 1\nrounds = 3\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert [line.partition("run.toml: ")[2] for line in str(caught.value).splitlines()] == [
        'clients = "4": must be a whole number',
        'early_stop = "no": must be true or false',
        'lr = "0.1": must be a number',
        "min_nodes = true: must be a whole number",
    ]
    assert load_config(None, {"clients": "4"}).clients == 4, "on a command line all are texts"


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Config.model_fields.values())
