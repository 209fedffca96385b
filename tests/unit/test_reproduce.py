"""The letter's curves and their comparison with ours, by hand."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dncfl.launch.reproduce.comparison import Reproduction, distance, distances
from dncfl.launch.reproduce.letter import Curve, all_curves, letter_curves
from dncfl.launch.reproduce.report import reproductions, write_report


def test_the_letters_curves_are_all_there() -> None:
    curves = letter_curves()
    ends = {(curve.figure, curve.method, curve.snr, curve.partition): curve.accuracy[-1] for curve in curves}
    assert len(ends) == len(curves) == 15
    assert all(len(curve.accuracy) == 20 for curve in curves)
    assert ends[2, "qfl", None, "iid"] == 92.34
    assert ends[2, "anonymous", 3.0, "iid"] == 74.38
    assert ends[3, "nonanonymous", 3.0, "classes:1"] == 35.7
    assert [curve.variant for curve in all_curves()].count("updates") == 4


def test_distances_are_root_mean_squares() -> None:
    assert distance(np.array([1.0, 2.0, 3.0]), (1.0, 5.0, -1.0)) == pytest.approx((25 / 3) ** 0.5)
    assert distance(np.array([1.0]), (2.0, 7.0)) == 1.0, "rounds that both have"
    assert distance(None, (1.0,)) is distance(np.array([1.0]), ()) is None


def test_runs_that_collapse_are_told_apart() -> None:
    ideal = Reproduction(Curve(figure=2, method="qfl", snr=None, partition="iid"), np.array([[50.0, 90.0]]))
    curve = Curve(figure=2, method="anonymous", snr=3.0, partition="iid", accuracy=(30.0, 70.0))
    one = Reproduction(curve, np.array([[30.0, 74.0], [10.0, 10.0], [30.0, 66.0], [10.0, 12.0]]))
    assert one.mean.tolist() == [20.0, 40.5]
    row = distances([ideal, one])[1]
    assert (row["collapsed"], row["seeds"], row["letter"], row["final"]) == (0.5, 4, 70.0, 40.5)
    assert row["rms_learners"] == 0
    assert row["rms_collapsed"] == pytest.approx(((20**2 + 59**2) / 2) ** 0.5)
    assert row["rms_to_qfl"] == pytest.approx(((30**2 + 49.5**2) / 2) ** 0.5)
    assert distances([ideal])[0]["rms_learners"] is None, "where none collapses there is nothing to tell apart"


def test_figures_and_tables_are_written_of_what_is_there(tmp_path: Path) -> None:
    curves = [curve for curve in all_curves() if curve.figure == 2]
    rows = [
        {"snr": None, **curve.labels, "seed": seed, "round": round, "accuracy": accuracy}
        for curve in curves[1:]
        for seed, accuracy in ((0, 0.5), (1, 0.7))
        for round in (1, 2)
    ]
    found = reproductions(curves, pl.DataFrame(rows, infer_schema_length=None))
    assert [one.curve for one in found] == curves[1:]
    assert all(one.accuracy.tolist() == [[50.0, 50.0], [70.0, 70.0]] for one in found)
    only_ideal = pl.DataFrame([{**curves[0].labels, "seed": 0, "round": 1, "accuracy": 0.5}])
    assert [one.curve for one in reproductions(curves, only_ideal)] == curves[:1], "no run that has an SNR"
    table, files = write_report(tmp_path, found, "a test")
    assert [path.name for path in files] == ["fig2.png", "fig2.pdf", "distances.csv", "curves.csv"]
    assert all(path.stat().st_size > 0 for path in files)
    points = pl.read_csv(tmp_path / "curves.csv")
    assert points.filter(method="dnc", snr=3.0, round=2)["letter"].to_list() == [40.13]
    assert len(table) == len(pl.read_csv(tmp_path / "distances.csv")) == len(found)
