"""Data, partitions, models and training."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn
from torchvision.datasets.mnist import MNIST

from dncfl.common.errors import ConfigError, DataError, ModelError
from dncfl.common.tasks.data import _digits_table, ensure_available, load_dataset
from dncfl.common.tasks.model import PaperCNN, build_model, load_vector, named_tensors, to_vector
from dncfl.common.tasks.partition import parse_partition
from dncfl.common.tasks.training import Recipe, evaluate, train

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
RECIPE = Recipe(epochs=2, batch_size=32, lr=0.01, momentum=0.5)


@pytest.mark.parametrize(
    "scheme", ["iid", "classes:1", "classes:2", "classes:5", "classes:10", "dirichlet:0.01", "dirichlet:1"]
)
@pytest.mark.parametrize("num_clients", [2, 3, 10, 64])
def test_partitions_share_equally(scheme: str, num_clients: int) -> None:
    shares = parse_partition(scheme).split(LABELS, num_clients, seed=5)
    assert len(shares) == num_clients
    assert len({len(share) for share in shares}) == 1
    assert len(shares[0]) > 0
    assert all(len(np.unique(share)) == len(share) for share in shares)
    if not scheme.startswith("classes:") or scheme == "classes:1":
        together = np.concatenate(shares)
        assert len(np.unique(together)) == len(together)
        assert len(shares[0]) == len(LABELS) // num_clients
    again = parse_partition(scheme).split(LABELS, num_clients, seed=5)
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))


def test_iid_is_another_for_another_seed() -> None:
    first, second = (parse_partition("iid").split(LABELS, 10, seed) for seed in (1, 2))
    assert not np.array_equal(first[0], second[0])
    assert _classes(first[0]).size == 10


def test_one_class_is_a_sorted_contiguous_shard() -> None:
    shares = parse_partition("classes:1").split(LABELS, 10, seed=0)
    assert [_classes(share).tolist() for share in shares] == [[digit] for digit in range(10)]


@pytest.mark.parametrize("num_classes", [2, 5, 9])
def test_k_distinct_classes_in_equal_shares(num_classes: int) -> None:
    shares = parse_partition(f"classes:{num_classes}").split(LABELS, 10, seed=1)
    for share in shares:
        counts = np.bincount(LABELS[share], minlength=10)
        assert np.count_nonzero(counts) == num_classes
        assert len(set(counts[counts > 0])) == 1
    assert len({tuple(_classes(share)) for share in shares}) > 1


def test_dirichlet_mixtures_narrow_with_alpha() -> None:
    def largest_share(alpha: float) -> float:
        shares = parse_partition(f"dirichlet:{alpha}").split(LABELS, 10, seed=3)
        return float(np.mean([np.bincount(LABELS[share]).max() / len(share) for share in shares]))

    assert largest_share(0.05) > 0.5 > 0.2 > largest_share(100)


def test_no_client_stays_empty() -> None:
    with pytest.raises(DataError, match="5 training samples cannot be shared among 6 clients"):
        parse_partition("iid").split(LABELS[:5], 6, seed=0)
    with pytest.raises(DataError, match="leaves client 0 without data"):
        parse_partition("classes:5").split(LABELS[:12], 6, seed=0)


def _classes(share: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(LABELS[share])


def test_digits_are_scikit_learns() -> None:
    table, bunch = _digits_table(), load_digits()
    assert np.array_equal(table[:, :-1].reshape(-1, 8, 8), bunch.images)
    assert np.array_equal(table[:, -1], bunch.target)


def test_digits() -> None:
    train_part, test_part = (load_dataset("digits", None, train=part) for part in (True, False))
    assert (len(train_part.labels), len(test_part.labels)) == (1437, 360)
    samples = test_part.all_samples("cpu")
    assert samples.inputs.shape == (360, 1, 28, 28)
    assert samples.inputs.min() == pytest.approx(-0.1307 / 0.3081)
    assert samples.inputs.max() == pytest.approx((1 - 0.1307) / 0.3081)
    assert np.unique(samples.labels).tolist() == list(range(10))
    chosen = test_part.samples(np.array([3, 1]), "cpu")
    assert torch.equal(chosen.inputs, samples.inputs[[3, 1]])


def test_mnist_without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="there is no such folder"):
        ensure_available("mnist", str(tmp_path / "nowhere"))
    monkeypatch.setattr(MNIST, "mirrors", [])
    with pytest.raises(DataError, match=r"cannot be downloaded.*use --dataset digits"):
        ensure_available("mnist", str(tmp_path))
    with pytest.raises(DataError, match="cannot be downloaded"):
        load_dataset("mnist", str(tmp_path), train=True)


def _write_mnist(root: Path, labels: bytes, side: int = 28) -> None:
    """Real IDX files in torchvision's layout: as many images as labels, in both parts."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    pixels = (np.arange(len(labels) * side * side) % 256).astype(np.uint8).tobytes()
    for part in ("train", "t10k"):
        header = np.array([0x803, len(labels), side, side], dtype=">u4").tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + pixels)
        header = np.array([0x801, len(labels)], dtype=">u4").tobytes()
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + labels)


def test_mnist_in_torchvisions_layout(tmp_path: Path) -> None:
    _write_mnist(tmp_path, bytes(range(10)))
    ensure_available("mnist", str(tmp_path))
    samples = load_dataset("mnist", str(tmp_path), train=True).all_samples("cpu")
    assert samples.labels.tolist() == list(range(10))
    assert samples.inputs[0, 0, 0, 255 % 28].item() == pytest.approx((255 % 28 / 255 - 0.1307) / 0.3081)


@pytest.mark.parametrize(
    ("labels", "side", "reason"),
    [
        (bytes(range(10)), 8, "images of 8 x 8 pixels, where 28 x 28 are due"),
        (bytes(range(3)), 28, r"labels 0, 1, 2, where each of 0\.\.9 is due"),
        (bytes(range(11)), 28, "labels 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, where"),
    ],
)
def test_other_data_in_its_place_are_refused(tmp_path: Path, labels: bytes, side: int, reason: str) -> None:
    _write_mnist(tmp_path, labels, side)
    with pytest.raises(DataError, match=reason):
        load_dataset("mnist", str(tmp_path), train=True)
    with pytest.raises(DataError, match=reason):
        load_dataset("mnist", str(tmp_path), train=False)


def test_a_damaged_file_is_not_to_be_removed_from_a_users_own_folder(tmp_path: Path) -> None:
    _write_mnist(tmp_path, bytes(range(10)))
    (tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte").write_bytes(b"junk")
    with pytest.raises(DataError, match=r"damaged .*; put sound files into .*raw$"):
        load_dataset("mnist", str(tmp_path), train=False)


def test_the_letters_model() -> None:
    model = build_model("paper-cnn", seed=1, device="cpu")
    assert to_vector(model).size == sum(p.numel() for p in PaperCNN().parameters()) == 21_840
    assert np.array_equal(to_vector(model), to_vector(build_model("paper-cnn", seed=1, device="cpu")))
    assert not np.array_equal(to_vector(model), to_vector(build_model("paper-cnn", seed=2, device="cpu")))


def normed() -> nn.Module:
    """A user's model with batch norm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.BatchNorm1d(4), nn.Linear(4, 10))


def broken() -> nn.Module:
    raise RuntimeError("no such luck")


def no_model() -> int:
    return 3


def of_other_images() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, 10))


def of_five_classes() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 5))


class TwoScores(nn.Linear):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]  # it does not fit on purpose
        scores = super().forward(images.flatten(1))
        return scores, scores


def of_two_scores() -> nn.Module:
    return TwoScores(784, 10)


def of_no_parameters() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(10))


def that_waits() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))


def test_floating_point_buffers_travel_and_counters_stay() -> None:
    model = build_model(f"{__name__}:normed", seed=0, device="cpu")
    theta = to_vector(model)
    num_parameters = sum(p.numel() for p in model.parameters())
    assert theta.size == num_parameters + 8
    samples = load_dataset("digits", None, train=True).samples(np.arange(64), "cpu")
    train(model, samples, RECIPE, seed=0, round=1, client=0)
    assert not np.array_equal(to_vector(model)[num_parameters:], theta[num_parameters:])
    load_vector(model, theta)
    assert np.array_equal(to_vector(model), theta)
    names = list(named_tensors(model, theta))
    assert names[-2:] == ["2.running_mean", "2.running_var"]
    theta[-4:] = -1e-3
    load_vector(model, theta)
    assert np.isfinite(evaluate(model, samples).loss)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_to_be_found:model", "No module named"),
        (f"{__name__}:missing", "has no attribute"),
        (f"{__name__}:no_model", "must return a torch.nn.Module, not int"),
        (f"{__name__}:of_five_classes", r"gives scores \(2, 5\) for inputs \(2, 1, 28, 28\): must be \(2, 10\)"),
        (f"{__name__}:of_two_scores", r"gives a tuple for inputs .*: must be \(2, 10\)"),
        (f"{__name__}:of_no_parameters", "has no parameters to train"),
    ],
)
def test_models_that_are_none(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(name, seed=0, device="cpu")


def test_an_error_of_a_models_own_is_shown_with_its_place() -> None:
    with pytest.raises(ModelError, match=r"making the model .* failed: RuntimeError: no such luck\n(.|\n)*test_tasks.py"):
        build_model(f"{__name__}:broken", seed=0, device="cpu")
    with pytest.raises(ModelError, match=r"making the model .* failed: RuntimeError: mat1 and mat2 shapes cannot be"):
        build_model(f"{__name__}:of_other_images", seed=0, device="cpu")


def test_layers_that_wait_for_their_first_input_are_drawn_from_the_seed() -> None:
    thetas = [to_vector(build_model(f"{__name__}:that_waits", seed=seed, device="cpu")) for seed in (0, 0, 1)]
    assert thetas[0].size == 785 * 10
    assert np.array_equal(thetas[0], thetas[1])
    assert not np.array_equal(thetas[0], thetas[2])


def test_a_model_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("my_model.py").write_text("from torch import nn\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n")
    assert to_vector(build_model("my_model:make", seed=0, device="cpu")).size == 7850


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device whose absence is tested")
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no CUDA device"):
        build_model("paper-cnn", seed=0, device="cuda")


def test_training_depends_on_its_place_alone_and_learns() -> None:
    samples = load_dataset("digits", None, train=True).samples(np.arange(320), "cpu")

    def trained(seed: int = 1, round: int = 2, client: int = 3) -> tuple[NDArray[np.float32], float]:
        torch.rand(3)  # whatever else draws from torch's generator must not matter
        model = build_model("paper-cnn", seed=0, device="cpu")
        loss = train(model, samples, RECIPE, seed=seed, round=round, client=client)
        return to_vector(model), loss

    base, loss = trained()
    assert np.array_equal(base, trained()[0])
    for other in (trained(seed=2), trained(round=3), trained(client=4)):
        assert not np.array_equal(base, other[0])
    untrained = evaluate(build_model("paper-cnn", seed=0, device="cpu"), samples).loss
    assert loss < untrained


def test_training_stops_when_told() -> None:
    class EnoughError(Exception):
        pass

    steps = []

    def before_step() -> None:
        steps.append(1)
        if len(steps) == 3:
            raise EnoughError

    samples = load_dataset("digits", None, train=True).samples(np.arange(320), "cpu")
    with pytest.raises(EnoughError):
        train(PaperCNN(), samples, RECIPE, seed=0, round=1, client=0, before_step=before_step)
    assert len(steps) == 3


def test_evaluation_by_hand() -> None:
    samples = load_dataset("digits", None, train=False).samples(np.arange(10), "cpu")

    class AlwaysThree(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            scores = torch.zeros(len(images), 10)
            scores[:, 3] = 1.0
            return scores

    test = evaluate(AlwaysThree(), samples)
    threes = int((samples.labels == 3).sum())
    assert test.accuracy == threes / 10
    assert list(test.recall) == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert test.loss == pytest.approx(np.log(9 + np.e) - threes / 10, abs=1e-6)
