"""Grids: which runs they mean, what these are called, and a clear word for every mistake."""

from pathlib import Path

import pytest

from dncfl.common.config import load_config
from dncfl.common.errors import ConfigError
from dncfl.launch.sweep.grid import MOST_PLACES, read_grid
from dncfl.launch.sweep.runs import Run


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_axes_are_all_combined_one_seed_after_the_other(tmp_path: Path) -> None:
    runs = read_grid(write(tmp_path, 'rounds = 2\nseeds = 2\n[axes]\nmethod = ["dnc", "qfl"]\nrelay-slots = [0, 1, 2]\n'))
    told = [(run.config.seed, run.config.method, run.config.relay_slots) for run in runs]
    assert told == [(seed, method, slots) for seed in (0, 1) for method in ("dnc", "qfl") for slots in (0, 1, 2)]
    assert all(run.config.rounds == 2 for run in runs)
    assert runs[1].labels == {"method": "dnc", "relay_slots": 1}
    assert runs[1].name == "method=dnc,relay_slots=1,seed=0"


def test_cases_are_one_more_axis(tmp_path: Path) -> None:
    runs = read_grid(
        write(
            tmp_path,
            "seeds = [7]\ncases = [{name = 'sum', method = 'anonymous', anonymous-variant = 'updates'}, {method = 'qfl'}]\n"
            "[axes]\nclients = [3, 4]\n",
        )
    )
    assert [run.labels for run in runs] == [
        {"case": case, "clients": clients} for case in ("sum", "method=qfl") for clients in (3, 4)
    ]
    assert {run.config.anonymous_variant for run in runs if run.labels["case"] == "sum"} == {"updates"}
    assert [run.config.seed for run in runs] == [7] * 4


def test_a_value_per_link_is_a_value(tmp_path: Path) -> None:
    table = "{ nodes = [[0, 0.1], [0.2, 0]], server = [0.3, 0.4] }"
    runs = read_grid(write(tmp_path, f"clients = 2\n[axes]\npe = [0.1, {table}]\n"))
    assert [run.labels["pe"] for run in runs] == [0.1, "table-2"]
    assert runs[1].config.per_link("pe").tolist() == [[0, 0.1, 0.3], [0.2, 0, 0.4]]


def test_a_grid_without_axes_is_a_run(tmp_path: Path) -> None:
    (run,) = read_grid(write(tmp_path, ""))
    assert (run.labels, run.name, run.config) == ({}, "seed=0", load_config(None, {"seed": 0}))


def test_names_fit_any_file_system() -> None:
    run = Run({"partition": "classes:1", "model": "a/b:c ü" * 99}, load_config(None, {}))
    assert run.name.startswith("partition=classes_1,model=a_b_c_")
    assert run.name.isascii()
    assert len(run.name) <= 200


def test_the_digest_tells_what_is_computed_and_nothing_else() -> None:
    def digest(**settings: object) -> str:
        return Run({}, load_config(None, settings)).digest

    assert digest() == digest(snr=3, clients=10, field=257, data_root="/elsewhere", out="x", json=True)
    others = [
        digest(snr=4), digest(seed=1), digest(pe=0.2), digest(relay_slots=3), digest(faults=["kill:0:1:before-training"])
    ]  # fmt: skip
    assert len({digest(), *others}) == 6


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("cliens = 4", ["cliens: unknown setting; did you mean clients?"]),
        ("[axes]\nsnrr = [1]", ["snrr: unknown setting; did you mean snr?"]),
        ("[axes]\nsnr = []", ["axes: snr = []: must be a list of at least one value"]),
        ("[axes]\nsnr = 3", ["axes: snr = 3: must be a list of at least one value"]),
        ("axes = 3", ["axes = 3: must be a table, as in", "    [axes]", "    snr = [1, 3]"]),
        ("snr = 1\n[axes]\nsnr = [1, 3]", ["snr: is an axis, and a fixed setting too; must be one of them"]),
        ("lr = 1\ncases = [{lr = 2}]", ["lr: is a setting of cases, and a fixed setting too; must be one of them"]),
        (
            "cases = [{lr = 2}]\n[axes]\nlr = [1]",
            ["lr: is an axis, and a setting of cases too; must be one of them"],
        ),
        ("cases = []", ["cases = []: must be tables, as in", "    [[cases]]", "    method = 'qfl'"]),
        ("cases = [{}]", ["cases: name = : must be a text, and a case without one needs a setting"]),
        ("cases = [{name = 3}]", ["cases: name = 3: must be a text, and a case without one needs a setting"]),
        ("cases = [{name = 'a'}, {name = 'a', lr = 1}]", ["cases: a: stands there twice"]),
        ("seed = 3", ["seed: give seeds, a number of seeds or a list of them"]),
        ("[axes]\nout = ['a']", ["out: a sweep gives each run its place in its own folder"]),
        ("seeds = 0", ["seeds = 0: must be a number of seeds, or a list of whole numbers from 0 on"]),
        ("seeds = true", ["seeds = True: must be a number of seeds, or a list of whole numbers from 0 on"]),
        ("seeds = [1, -1]", ["seeds = [1, -1]: must be a number of seeds, or a list of whole numbers from 0 on"]),
        ("seeds = [1, 2, 1]", ["seeds = [1, 2, 1]: holds a seed twice"]),
        ("seeds = 1000000000", ["is a grid of 1000000000 runs: must be at most 100000"]),
        ("[axes]\nsnr = [3, 3.0]", ["the same run as snr=3", "    in snr=3.0"]),
        (
            "[axes]\nclients = [3, 4]\nrelay_slots = [1, 3]",
            ["relay_slots = 3: must be at most M-1 = 2", "    in clients=3, relay_slots=3"],
        ),
        (
            "[axes]\nmethod = ['dnc', 'qfl', 'qlf']\nsnr = [1, 0]",
            [
                "snr = 0: must be positive",
                "    in method=dnc, snr=0",
                "    in method=qfl, snr=0",
                "method = qlf: must be one of 'dnc', 'repetition', 'colrel', 'qfl', 'nonanonymous' or 'anonymous'",
                "    in method=qlf, snr=1",
                "    in method=qlf, snr=0",
            ],
        ),
    ],
)
def test_every_mistake_is_named_before_anything_runs(tmp_path: Path, text: str, lines: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_grid(path)
    assert str(error.value).splitlines() == [line if line.startswith(" ") else f"{path}: {line}" for line in lines]


def test_many_mistakes_do_not_fill_the_screen(tmp_path: Path) -> None:
    path = write(tmp_path, f"[axes]\nclients = [1, 3]\nlevels = {list(range(2, 22))}\nrelay_slots = {list(range(50))}")
    with pytest.raises(ConfigError) as error:
        read_grid(path)
    lines = str(error.value).splitlines()
    assert len(lines) <= 20 * (MOST_PLACES + 2) + 1
    assert "    and in 990 more of 2000 combinations" in lines
    assert lines[-1].endswith("more mistakes")


@pytest.mark.parametrize(
    ("content", "message"), [(b"seeds = [", "not valid TOML"), (b"\xff", "not valid"), (None, "cannot be")]
)
def test_broken_grids(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "grid.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as error:
        read_grid(path)
    assert str(error.value).count(str(path)) == 1
