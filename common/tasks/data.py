"""The data sets: `digits`, embedded in scikit-learn, `mnist`, by torchvision, and the user's own.

The first two give images of 1 × 28 × 28 pixels, normalised by MNIST's mean and deviation, and labels 0..9.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock  # several runs may start on one cache
from numpy.typing import NDArray
from platformdirs import user_cache_path  # where a user's caches belong differs by system
from torch.nn.functional import interpolate

from dncfl.common.errors import ConfigError, DataError
from dncfl.common.randomness import Purpose, stream
from dncfl.common.tasks.own import errors_of_own, imported, is_own
from dncfl.common.tasks.partition import NUM_CLASSES

SIDE = 28
PIXEL_MEAN, PIXEL_DEVIATION = 0.1307, 0.3081
MNIST_FILES = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
NUM_DIGITS_TEST = 360
"""Of the 1,797 digits, a fifth is for testing: the same for every seed."""


@dataclass(frozen=True, eq=False)
class Form:
    """What a model takes and gives: `example`, two inputs (2, …) of zeros, and the number of classes that it tells apart."""

    example: torch.Tensor
    num_classes: int

    def __str__(self) -> str:
        shape = ", ".join(["n", *map(str, self.example.shape[1:])])
        return f"inputs ({shape}) of {self.example.dtype} and {self.num_classes} classes"


DIGIT_IMAGES = Form(torch.zeros(2, 1, SIDE, SIDE), NUM_CLASSES)
"""The form of `digits` and `mnist`."""


@dataclass(frozen=True)
class Samples:
    """Labelled samples ready for a model: `inputs` (n, …), images (n, 1, 28, 28) float32 of digits, and `labels` (n,) int64."""

    inputs: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def form(self) -> Form:
        """The form of a data set that these are all samples of: each class is among them."""
        return Form(torch.zeros(2, *self.inputs.shape[1:], dtype=self.inputs.dtype), int(self.labels.max()) + 1)


@dataclass(frozen=True)
class Dataset:
    """A data set as it is stored: `values` (n, …), of which `prepared` makes inputs of a model, and `labels` (n,) int64."""

    values: torch.Tensor
    labels: torch.Tensor
    prepared: Callable[[torch.Tensor], torch.Tensor]

    def samples(self, indices: NDArray[np.int64], device: str) -> Samples:
        """The samples of these numbers, in this order, on a torch device."""
        chosen = torch.from_numpy(indices)
        return Samples(self.prepared(self.values[chosen]).to(device), self.labels[chosen].to(device))

    def all_samples(self, device: str) -> Samples:
        """All samples in their order."""
        return self.samples(np.arange(len(self.labels)), device)

    @property
    def form(self) -> Form:
        """What a model of these data takes and gives."""
        return Samples(self.prepared(self.values[:1]), self.labels).form


def ensure_available(dataset: str, data_root: str | None) -> Dataset | None:
    """Make sure that the data set can be loaded, downloading it once where that is possible.

    Of your own, both parts are loaded once, so that what the function downloads is there before many nodes ask for it; the
    training part is returned. Raises as `load_dataset`, and DataError where the two parts do not belong together.
    """
    if is_own(dataset):
        training, test = (_own(dataset, data_root, train) for train in (True, False))
        if (form := str(training.form)) != (other := str(test.form)):
            raise DataError(f"dataset = {dataset}: the training part has {form}, but the test part has {other}")
        return training
    if dataset == "mnist":
        _mnist_root(data_root)
    return None


def load_dataset(dataset: str, data_root: str | None, *, train: bool) -> Dataset:
    """The training or the test part of a data set, as by `ensure_available`.

    Raises DataError when it is not there or damaged, ConfigError when there is no such function of your own.
    """
    if is_own(dataset):
        return _own(dataset, data_root, train)
    return _digits(train) if dataset == "digits" else _mnist(data_root, train)


def _normalised(full_scale: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Images (n, 1, 28, 28) of pixels (n, height, width) in 0..full_scale, upsampled and normalised."""

    def prepared(pixels: torch.Tensor) -> torch.Tensor:
        images = pixels.unsqueeze(1).to(torch.float32) / full_scale
        if images.shape[-2:] != (SIDE, SIDE):
            images = interpolate(images, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        return (images - PIXEL_MEAN) / PIXEL_DEVIATION

    return prepared


def _digits(train: bool) -> Dataset:
    table = _digits_table()
    order = stream(0, Purpose.TEST_SPLIT).permutation(len(table))
    chosen = table[order[NUM_DIGITS_TEST:] if train else order[:NUM_DIGITS_TEST]]
    pixels = torch.from_numpy(chosen[:, :-1].reshape(-1, 8, 8))
    return Dataset(pixels, torch.from_numpy(chosen[:, -1].astype(np.int64)), _normalised(full_scale=16))


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
    return Dataset(data.data, data.targets, _normalised(full_scale=255))


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


def _own(name: str, data_root: str | None, train: bool) -> Dataset:
    """A part of the user's own data set, by `function(root=…, train=…)`, which gives inputs (n, …) and labels (n,).

    Whole numbers of 64 bits stay as they are, as places in a table; other inputs become float32.
    """
    function = imported("dataset", name, DataError)
    part = f"the {'training' if train else 'test'} part of the dataset {name}"
    with errors_of_own(DataError, f"loading {part}"):
        given = function(root=data_root, train=train)
    if not isinstance(given, tuple) or len(given) != 2:
        what = f"{type(given).__name__}{f' of {len(given)}' if isinstance(given, tuple) else ''}"
        raise ConfigError(f"dataset = {name}: must return a pair of inputs and labels, not {what}")
    try:
        inputs, labels = map(_as_tensor, given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"dataset = {name}: must return a pair of arrays or tensors ({error})") from None
    if labels.ndim != 1 or inputs.ndim < 2 or len(inputs) != len(labels) or not len(labels):
        shapes = f"{tuple(inputs.shape)} and labels {tuple(labels.shape)}"
        raise ConfigError(f"dataset = {name}: gives inputs {shapes}: must be (n, …) and (n,), with n > 0")
    if inputs.is_complex():
        raise ConfigError(f"dataset = {name}: gives inputs of {inputs.dtype}: must be real")
    if (found := sorted(set(labels.tolist()))) != list(range(len(found))):
        some = f"{', '.join(map(str, found[:12]))}{', …' if len(found) > 12 else ''}"
        raise DataError(f"{part} must have labels 0..K-1, each at least once; there are {some}")
    if inputs.is_floating_point() and not torch.isfinite(inputs := inputs.to(torch.float32)).all():
        raise DataError(f"{part} has inputs that are NaN or infinite in float32")
    return Dataset(inputs, labels.to(torch.int64), _as_floats)


def _as_tensor(values: Any) -> torch.Tensor:
    """A tensor of an array or whatever torch makes one of.

    Of an array that torch cannot share it is a copy: one that is read-only, as of a mapped file, reversed, or big-endian.
    """
    if isinstance(values, np.ndarray):
        values = np.require(values, values.dtype.newbyteorder("="), ["C", "W"])
    return torch.as_tensor(values, device="cpu").detach()


def _as_floats(values: torch.Tensor) -> torch.Tensor:
    return values if values.dtype == torch.int64 else values.to(torch.float32)
