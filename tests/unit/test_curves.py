"""Curves over a table: the mean, its confidence band, and the common grid of step functions."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dncfl.common.errors import ConfigError, StorageError
from dncfl.launch.sweep.curves import confidence_band, curves, on_common_grid
from dncfl.launch.sweep.plot import _figure, draw
from dncfl.launch.sweep.table import FIGURES

SLOTS = {0: [1, 2, 3], 1: [2, 3, 5]}
"""Of the rounds of even and odd seeds."""


def make_table(num_seeds: int = 2, **labels: list[object]) -> pl.DataFrame:
    """Three rounds of some seeds for each of the labels' values; accuracy = 0.1·round + 0.2·seed."""
    number = max((len(values) for values in labels.values()), default=1)
    rows = []
    for i in range(number):
        for seed in range(num_seeds):
            for round, slot in enumerate(SLOTS[seed % 2], start=1):
                values = dict.fromkeys(FIGURES, 0.0) | {"accuracy": 0.1 * round + 0.2 * seed, "slots": slot, "bytes": 7 * slot}
                place = {"seed": seed, "run": f"{i}-{seed}", "engine": "looped", "round": round}
                rows.append({**{name: labels[name][i] for name in labels}, **place, **values})
    return pl.DataFrame(rows)


def write(folder: Path, table: pl.DataFrame) -> Path:
    table.write_parquet(folder / "table.parquet")
    return folder


def test_the_band_is_student_ts() -> None:
    """Printed tables: t(0.975) is 12.706 for 1, 3.182 for 3 and 2.262 for 9 degrees of freedom."""
    for n, quantile in ((2, 12.706), (4, 3.182), (10, 2.262)):
        values = np.arange(n, dtype=float)[:, None]
        mean, half_width = confidence_band(values)
        deviation = np.sqrt(n * (n + 1) / 12)  # of 0..n-1, with n - 1 in the denominator
        assert mean == pytest.approx((n - 1) / 2)
        assert half_width == pytest.approx(quantile * deviation / np.sqrt(n), rel=2e-4)


def test_a_single_run_has_no_band() -> None:
    mean, half_width = confidence_band(np.array([[1.0, 2.0]]))
    assert mean.tolist() == [1, 2]
    assert np.isnan(half_width).all()


def test_the_band_holds_the_true_mean_as_often_as_it_says() -> None:
    mean, half_width = confidence_band(np.random.default_rng(0).normal(size=(4, 20_000)))
    assert np.mean(np.abs(mean) <= half_width) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 20_000))


def test_steps_keep_their_last_value_where_all_runs_have_one() -> None:
    one = (np.array([1.0, 3.0, 8.0]), np.array([10.0, 20.0, 30.0]))
    other = (np.array([2.0, 3.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    grid, values = on_common_grid([one, other])
    assert grid.tolist() == [2, 3, 6]
    assert values.tolist() == [[10, 20, 20], [1, 2, 3]]


def test_runs_without_a_common_x_are_refused() -> None:
    with pytest.raises(ConfigError, match="share no x"):
        on_common_grid([(np.array([1.0]), np.array([0.0])), (np.array([2.0]), np.array([0.0]))])


def test_a_curve_for_each_value_of_the_labels() -> None:
    table = make_table(method=["dnc", "qfl"])
    drawn = list(curves(table, "round", "accuracy", ["method"]))
    assert [curve.labels for curve in drawn] == [{"method": "dnc"}, {"method": "qfl"}]
    assert [curve.num_runs for curve in drawn] == [2, 2]
    assert drawn[0].mean == pytest.approx([0.2, 0.3, 0.4])
    (over_slots,) = curves(table.filter(pl.col("method") == "dnc"), "slots", "accuracy", [])
    assert over_slots.x.tolist() == [2, 3]
    assert over_slots.mean == pytest.approx([(0.2 + 0.3) / 2, (0.3 + 0.4) / 2])


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_picture_of_any_table(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, make_table(method=["dnc", "qfl"], snr=[1, 3.5]))
    picture = draw(path, x="bytes", each_run=True, out=tmp_path / f"a.{suffix}")
    assert picture.stat().st_size > 1000


def test_only_means_over_enough_seeds_have_a_band(tmp_path: Path) -> None:
    path = write(tmp_path, make_table(4, method=["dnc", "qfl"], snr=[1, 3.5]))
    by_all = draw(path, by=["method", "snr"], out=tmp_path / "all.svg").read_text()
    assert "mean of 4 seeds, with 95 % confidence" in by_all
    assert "PolyCollection" in by_all
    by_method = draw(path, by=["method"], out=tmp_path / "method.svg").read_text()
    assert "mean over seeds and snr, of 4 runs -->" in by_method
    assert "PolyCollection" not in by_method


def test_few_runs_are_drawn_one_by_one() -> None:
    table = make_table(method=["dnc", "qfl"])
    for each_run in (False, True):
        (axes,) = _figure(list(curves(table, "round", "accuracy", ["method"])), "round", "accuracy", [], each_run=each_run).axes
        assert axes.get_title() == "mean of 2 seeds, and each run"
        assert len(axes.lines) == 2 * (1 + 2)
        assert not axes.collections


def test_curves_of_different_numbers_of_runs_tell_them() -> None:
    drawn = list(
        curves(
            make_table(method=["dnc", "qfl"]).filter(~pl.col("seed").eq(1) | pl.col("method").eq("qfl")),
            "round",
            "accuracy",
            ["method"],
        )
    )
    (axes,) = _figure(drawn, "round", "accuracy", [], each_run=False).axes
    assert [str(line.get_label()) for line in axes.lines if not str(line.get_label()).startswith("_")] == [
        "method dnc (n=1)",
        "method qfl (n=2)",
    ]
    assert axes.get_title() == "mean of n seeds, and each run"


def test_a_curve_for_each_seed(tmp_path: Path) -> None:
    path = write(tmp_path, make_table(method=["dnc", "qfl"]))
    picture = draw(path, by=["seed", "method"], out=tmp_path / "seeds.svg").read_text()
    assert all(f"seed {seed}, method {method} -->" in picture for seed in (0, 1) for method in ("dnc", "qfl"))
    assert "one run each" in picture


def test_the_default_picture_and_a_csv(tmp_path: Path) -> None:
    make_table().write_csv(tmp_path / "some.csv")
    assert draw(tmp_path / "some.csv", y="loss") == tmp_path / "loss-by-round.png"
    assert (tmp_path / "loss-by-round.png").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": "accurcy"}, "--y accurcy: must be one of accuracy, loss"),
        ({"by": ["metod"]}, "--by metod: is no label of this table; there are method, snr, early_stop"),
        ({"where": ["snr"]}, "--where snr: must be LABEL=VALUE"),
        ({"where": ["snt=1"]}, "--where snt: is no label of this table"),
        ({"where": ["snr=9"]}, "--where snr=9: no run has it; there are 1, 3.5"),
        ({"where": ["snr=1", "method=qfl"]}, "no run has all of it"),
        ({"out": Path("a.jpg")}, "--out a.jpg: must end with one of .png, .pdf, .svg"),
    ],
    ids=str,
)
def test_mistakes_are_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    path = write(tmp_path, make_table(method=["dnc", "qfl"], snr=[1, 3.5], early_stop=[True, False]))
    with pytest.raises(ConfigError) as error:
        draw(path, **options)  # type: ignore[arg-type]  # options by name
    assert message in str(error.value)


@pytest.mark.parametrize("where", [["snr=1.0"], ["early-stop=true"], ["seed=0", "seed=1", "snr=1"]])
def test_what_is_chosen_is_there(tmp_path: Path, where: list[str]) -> None:
    path = write(tmp_path, make_table(method=["dnc", "qfl"], snr=[1, 3.5], early_stop=[True, False]))
    assert draw(path, where=where).exists()


def test_too_many_curves_to_read(tmp_path: Path) -> None:
    path = write(tmp_path, make_table(snr=list(range(1, 32))))
    with pytest.raises(ConfigError, match="31 curves: nobody can read more than 30; choose by --by or --where of snr"):
        draw(path)


def test_what_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no table"):
        draw(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StorageError, match="is no table of a sweep: it has no column seed"):
        draw(tmp_path / "other.csv")
    (tmp_path / "table.parquet").write_bytes(b"junk")
    with pytest.raises(StorageError, match="cannot be read as a table"):
        draw(tmp_path)
