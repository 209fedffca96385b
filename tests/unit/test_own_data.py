"""A data set of one's own: what may be given, what becomes of it, and what is said of anything else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dncfl.common.config import load_config
from dncfl.common.errors import ConfigError, DataError, ModelError
from dncfl.common.tasks.data import Form, ensure_available, load_dataset
from dncfl.common.tasks.model import build_model
from dncfl.common.tasks.training import evaluate
from dncfl.launch.sweep.jobs import Finished
from dncfl.launch.sweep.plot import draw
from dncfl.launch.sweep.runs import Run
from dncfl.launch.sweep.table import label_names, make_table
from dncfl.node.trainer import local_trainers
from tests.unit.test_carry_out import record

LABELS = np.arange(12) % 3
IMAGES = np.arange(12 * 2 * 4 * 4, dtype=np.uint8).reshape(12, 2, 4, 4)


def images(root: str | None, train: bool) -> tuple[Any, Any]:
    return IMAGES[: 12 if train else 6], LABELS[: 12 if train else 6]


def words(root: str | None, train: bool) -> tuple[Any, Any]:
    """Places in a table of words, and labels as a list."""
    return torch.tensor([[0, 3], [4, 1], [2, 2], [1, 1]]), [0, 1, 1, 0]


def in_a_folder(root: str, train: bool) -> tuple[Any, Any]:
    """Images in a mapped file, which is read-only."""
    return np.load(Path(root) / "images.npy", mmap_mode="r"), LABELS


def talkative(root: str | None, train: bool) -> tuple[Any, Any]:
    print("downloaded")  # noqa: T201  # as code that downloads does
    return images(root, train)


def mean_word() -> nn.Module:
    return nn.EmbeddingBag(5, 2)


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 3))


def test_images_become_float32_and_keep_their_values() -> None:
    dataset = load_dataset(f"{__name__}:images", None, train=True)
    samples = dataset.samples(np.array([5, 0]), "cpu")
    assert samples.inputs.dtype == torch.float32
    assert samples.inputs.numpy().tolist() == IMAGES[[5, 0]].astype(float).tolist()
    assert samples.labels.tolist() == [2, 0]
    assert (dataset.form.example.shape, dataset.form.num_classes) == ((2, 2, 4, 4), 3)
    assert len(load_dataset(f"{__name__}:images", None, train=False).labels) == 6


def test_whole_numbers_stay_whole() -> None:
    dataset = load_dataset(f"{__name__}:words", None, train=True)
    assert dataset.form.example.dtype == dataset.all_samples("cpu").inputs.dtype == torch.int64
    model = build_model(f"{__name__}:mean_word", 0, "cpu", dataset.form)
    assert len(evaluate(model, dataset.all_samples("cpu")).recall) == 2


def test_the_root_is_handed_on_and_a_mapped_file_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    ensure_available(f"{__name__}:in_a_folder", str(tmp_path))
    dataset = load_dataset(f"{__name__}:in_a_folder", str(tmp_path), train=True)
    assert np.array_equal(dataset.values.numpy(), IMAGES)
    with pytest.raises(DataError, match=r"loading the training part of the dataset .*in_a_folder failed: FileNotFoundError"):
        ensure_available(f"{__name__}:in_a_folder", str(tmp_path / "nowhere"))


def test_a_model_is_built_for_the_data() -> None:
    form = load_dataset(f"{__name__}:images", None, train=True).form
    assert build_model(f"{__name__}:linear", 0, "cpu", form)(form.example).shape == (2, 3)
    with pytest.raises(ConfigError, match=r"takes inputs \(n, 1, 28, 28\) .* have inputs \(n, 2, 4, 4\) of torch.float32"):
        build_model("paper-cnn", 0, "cpu", form)
    whole = Form(torch.zeros(2, 1, 28, 28, dtype=torch.int64), 10)
    with pytest.raises(ConfigError, match=r"but the data have inputs \(n, 1, 28, 28\) of torch.int64 and 10 classes"):
        build_model("paper-cnn", 0, "cpu", whole)
    with pytest.raises(ModelError, match=r"for inputs \(n, 1, 28, 28\) of torch.int64 and 10 classes failed"):
        build_model(f"{__name__}:linear", 0, "cpu", whole)


@pytest.mark.parametrize(
    "values",
    [IMAGES[:, ::-1], IMAGES.astype(">f4"), IMAGES.astype(np.uint16), IMAGES.tolist()],
    ids=["reversed", "big-endian", "uint16", "lists"],
)
def test_any_kind_of_numbers_is_taken(monkeypatch: pytest.MonkeyPatch, values: Any) -> None:
    monkeypatch.setitem(globals(), "given", lambda root, train: (values, torch.from_numpy(LABELS).bfloat16()))
    samples = load_dataset(f"{__name__}:given", None, train=True).all_samples("cpu")
    assert np.array_equal(samples.inputs.numpy(), np.asarray(values))
    assert samples.labels.tolist() == LABELS.tolist()


def test_what_the_function_prints_does_not_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    load_dataset(f"{__name__}:talkative", None, train=True)
    assert capsys.readouterr() == ("", "downloaded\n")


def test_both_parts_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(root: str | None, train: bool) -> tuple[Any, Any]:
        return (IMAGES, LABELS) if train else (IMAGES[:4, :, :2], LABELS[:4] % 2)

    monkeypatch.setitem(globals(), "parts", parts)
    training, test = (
        rf"part has inputs \(n, 2, {height}, 4\) of torch.float32 and {k} classes" for height, k in ((4, 3), (2, 2))
    )
    with pytest.raises(DataError, match=f"the training {training}, but the test {test}"):
        ensure_available(f"{__name__}:parts", None)


GIVEN: dict[str, Any] = {
    "one": IMAGES,
    "three": (IMAGES, LABELS, LABELS),
    "ragged": ([[1], [2, 3]], [0, 1]),
    "words": (["a", "b"], [0, 1]),
    "flat": (np.arange(12.0), LABELS),
    "fewer": (IMAGES, LABELS[:4]),
    "none": (IMAGES[:0], LABELS[:0]),
    "one-hot": (IMAGES, np.eye(3)[LABELS]),
    "gap": (IMAGES, 2 * LABELS),
    "many": (np.zeros((20, 1)), np.arange(1, 21)),
    "halves": (IMAGES, LABELS / 2),
    "complex": (IMAGES * 1j, LABELS),
    "huge": (np.where(IMAGES == 7, 1e300, IMAGES), LABELS),
    "nan": (np.where(IMAGES == 7, np.nan, IMAGES), LABELS),
}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("one", ConfigError, "must return a pair of inputs and labels, not ndarray"),
        ("three", ConfigError, "must return a pair of inputs and labels, not tuple of 3"),
        ("ragged", ConfigError, "must return a pair of arrays or tensors"),
        ("words", ConfigError, "must return a pair of arrays or tensors"),
        ("flat", ConfigError, r"gives inputs \(12,\) and labels \(12,\): must be \(n, …\) and \(n,\), with n > 0"),
        ("fewer", ConfigError, r"gives inputs \(12, 2, 4, 4\) and labels \(4,\)"),
        ("none", ConfigError, r"gives inputs \(0, 2, 4, 4\) and labels \(0,\)"),
        ("one-hot", ConfigError, r"labels \(12, 3\)"),
        ("gap", DataError, r"the test part of .* must have labels 0..K-1, each at least once; there are 0, 2, 4$"),
        ("many", DataError, r"there are 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, …$"),
        ("halves", DataError, r"there are 0.0, 0.5, 1.0$"),
        ("complex", ConfigError, "gives inputs of torch.complex128: must be real"),
        ("huge", DataError, "NaN or infinite in float32"),
        ("nan", DataError, "the test part of .* has inputs that are NaN or infinite"),
    ],
)
def test_what_no_data_set_is(monkeypatch: pytest.MonkeyPatch, given: str, error: type[Exception], message: str) -> None:
    monkeypatch.setitem(globals(), "wrong", lambda root, train: GIVEN[given])
    with pytest.raises(error, match=message):
        load_dataset(f"{__name__}:wrong", None, train=False)


def test_a_function_that_takes_something_else() -> None:
    with pytest.raises(DataError, match=r"failed: TypeError: linear\(\) got an unexpected keyword argument 'root'"):
        load_dataset(f"{__name__}:linear", None, train=True)


def test_more_classes_per_client_than_there_are() -> None:
    own = {"dataset": f"{__name__}:images", "model": f"{__name__}:linear", "clients": 2}
    assert len(local_trainers(load_config(None, own | {"partition": "classes:3"}), [0])[0].samples) == 6
    with pytest.raises(DataError, match="partition = classes:4: the data have 3 classes"):
        local_trainers(load_config(None, own | {"partition": "classes:4"}), [0])


def test_data_sets_with_other_numbers_of_classes_share_a_table_and_a_picture(tmp_path: Path) -> None:
    table = make_table([_finished("mine:three", 3), _finished("mine:twelve", 12)])
    assert label_names(table) == ["dataset"]
    assert table.columns[-12:] == [f"recall_{label}" for label in range(12)]
    assert table["recall_2"].to_list() == [pytest.approx(0.02)] * 4
    assert table["recall_11"].to_list() == [None, None, pytest.approx(0.11), pytest.approx(0.11)]
    table.write_parquet(tmp_path / "table.parquet")
    both, one = (draw(tmp_path, y=f"recall_{label}", out=tmp_path / f"{label}.svg").read_text() for label in (2, 11))
    assert "mine:three" in both
    assert "mine:three" not in one
    with pytest.raises(ConfigError, match=r"--y recall_12: must be one of .* recall_11$"):
        draw(tmp_path, y="recall_12")
    with pytest.raises(ConfigError, match="--y recall_11: none of these runs has it"):
        draw(tmp_path, y="recall_11", where=["dataset=mine:three"])


def _finished(dataset: str, num_classes: int) -> Finished:
    """A run of two rounds that recognises a hundredth more of each class than of the one before."""
    config = load_config(None, {"dataset": dataset, "model": "mine:net", "clients": 3, "rounds": 2})
    recall = tuple(0.01 * label for label in range(num_classes))
    records = tuple(record(round, recall=recall) for round in (1, 2))
    return Finished(run=Run({"dataset": dataset}, config), engine="looped", records=records, seconds=1)
