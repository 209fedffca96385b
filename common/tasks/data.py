"""The data sets: `digits`, embedded in scikit-learn, and `mnist`, by torchvision.

Both give images of 1 × 28 × 28 pixels, normalised by MNIST's mean and deviation, and labels 0..9.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock  # several runs may start on one cache
from numpy.typing import NDArray
from platformdirs import user_cache_path  # where a user's caches belong differs by system
from torch.nn.functional import interpolate

from dncfl.common.errors import DataError
from dncfl.common.randomness import Purpose, stream
from dncfl.common.tasks.partition import NUM_CLASSES

SIDE = 28
PIXEL_MEAN, PIXEL_DEVIATION = 0.1307, 0.3081
MNIST_FILES = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
NUM_DIGITS_TEST = 360
"""Of the 1,797 digits, a fifth is for testing: the same for every seed."""


@dataclass(frozen=True)
class Samples:
    """Labelled images ready for a model: `images` (n, 1, 28, 28) float32, `labels` (n,) int64."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A data set as it is stored: `pixels` (n, height, width) in 0..full_scale, `labels` (n,) int64."""

    pixels: torch.Tensor
    labels: torch.Tensor
    full_scale: int

    def samples(self, indices: NDArray[np.int64], device: str) -> Samples:
        """The samples of these numbers, in this order, upsampled and normalised, on a torch device."""
        chosen = torch.from_numpy(indices)
        images = self.pixels[chosen].unsqueeze(1).to(torch.float32) / self.full_scale
        if images.shape[-2:] != (SIDE, SIDE):
            images = interpolate(images, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        return Samples(((images - PIXEL_MEAN) / PIXEL_DEVIATION).to(device), self.labels[chosen].to(device))

    def all_samples(self, device: str) -> Samples:
        """All samples in their order."""
        return self.samples(np.arange(len(self.labels)), device)


def ensure_available(dataset: str, data_root: str | None) -> None:
    """Make sure that the data set can be loaded, downloading it once where that is possible. Raises DataError if not."""
    if dataset == "mnist":
        _mnist_root(data_root)


def load_dataset(dataset: str, data_root: str | None, *, train: bool) -> Dataset:
    """The training or the test part of a data set, as by `ensure_available`. Raises DataError when it is not there."""
    return _digits(train) if dataset == "digits" else _mnist(data_root, train)


def _digits(train: bool) -> Dataset:
    table = _digits_table()
    order = stream(0, Purpose.TEST_SPLIT).permutation(len(table))
    chosen = table[order[NUM_DIGITS_TEST:] if train else order[:NUM_DIGITS_TEST]]
    pixels = torch.from_numpy(chosen[:, :-1].reshape(-1, 8, 8))
    return Dataset(pixels, torch.from_numpy(chosen[:, -1].astype(np.int64)), full_scale=16)


def _digits_table() -> NDArray[np.float64]:
    """The digits (1797 × 65) of scikit-learn, pixels and label.

    They are read from its file where that is found: to import it takes a second and 60 MB of every start.
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    table: NDArray[np.float64] = np.column_stack([bunch.data, bunch.target])
    return table


def _mnist(data_root: str | None, train: bool) -> Dataset:
    from torchvision.datasets import MNIST

    root = _mnist_root(data_root)
    try:
        data = MNIST(root, train=train)
    except Exception as error:  # torchvision raises almost anything on a damaged file
        raise _unusable(root, data_root, f"{type(error).__name__} {error}".strip()) from error
    if data.data.shape[1:] != (SIDE, SIDE):
        height, width = data.data.shape[1:]
        raise _unusable(root, data_root, f"images of {height} x {width} pixels, where {SIDE} x {SIDE} are due")
    if (found := data.targets.unique().tolist()) != list(range(NUM_CLASSES)):
        raise _unusable(root, data_root, f"labels {', '.join(map(str, found))}, where each of 0..{NUM_CLASSES - 1} is due")
    if len(data.data) != len(data.targets):
        raise _unusable(root, data_root, f"{len(data.data)} images with {len(data.targets)} labels")
    return Dataset(data.data, data.targets, full_scale=255)


def _unusable(root: Path, data_root: str | None, reason: str) -> DataError:
    folder = root / "MNIST"
    again = f"remove {folder} and try again" if data_root is None else f"put sound files into {folder / 'raw'}"
    return DataError(f"MNIST in {root} is damaged ({reason}); {again}")


def _mnist_root(data_root: str | None) -> Path:
    """The folder that holds MNIST, downloaded into it once. Raises DataError."""
    root = user_cache_path("dncfl") / "data" if data_root is None else Path(data_root)
    if data_root is not None and not root.is_dir():
        raise DataError(f"data_root = {data_root}: there is no such folder; name the one that holds MNIST/raw")
    if not _holds_mnist(root):
        _download_mnist(root)
    return root


def _holds_mnist(root: Path) -> bool:
    return all((root / "MNIST" / "raw" / name).is_file() for name in MNIST_FILES)


def _download_mnist(root: Path) -> None:
    from torchvision.datasets import MNIST

    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / "mnist.lock"):
            MNIST(root, train=True, download=True)
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise DataError(
            f"MNIST is not in {root} and cannot be downloaded ({reason}); copy its four files into "
            f"{root / 'MNIST' / 'raw'}, name another folder by --data-root, or use --dataset digits"
        ) from error
