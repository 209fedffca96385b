"""The models, and a model as one vector θ.

The rule for buffers: θ holds the parameters in order, then the floating-point buffers in order (batch-norm means and
variances), so that these are sent, averaged and saved like parameters. Buffers of whole numbers (batch counters) are as
a new model has them whenever training begins. A variance that quantisation noise made negative is read as zero.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import dropout, max_pool2d, relu

from dncfl.common.config import PAPER_CNN
from dncfl.common.errors import ConfigError, DncflError, ModelError
from dncfl.common.randomness import Purpose, torch_seed
from dncfl.common.tasks.data import DIGIT_IMAGES, Form
from dncfl.common.tasks.own import errors_of_own, imported

Vector = NDArray[np.float32]
"""θ or Δθ: (d,) float32."""


class PaperCNN(nn.Module):
    """The letter's four-layer classifier of 28 × 28 images: 21,840 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Class scores (n, 10) of images (n, 1, 28, 28)."""
        x = relu(max_pool2d(self.conv1(images), 2))
        x = relu(max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = relu(self.fc1(x.flatten(1)))
        x = dropout(x, training=self.training)
        scores: torch.Tensor = self.fc2(x)
        return scores


def build_model(name: str, seed: int, device: str, form: Form = DIGIT_IMAGES) -> nn.Module:
    """The model of a name for data of this form, on a torch device, with its first parameters drawn from the seed.

    Raises ConfigError when there is no such model or device, or the model does not fit its task, ModelError when the model's
    own code raises an error.

    Your own model is `package.module:function`, found from the working folder too; the function takes no arguments and
    returns a torch module that gives scores (n, K) for n inputs, those of digits (n, 10) for images (n, 1, 28, 28).
    """
    inputs, taken = form.example, DIGIT_IMAGES.example
    if name == PAPER_CNN and (inputs.shape, inputs.dtype) != (taken.shape, taken.dtype):
        raise ConfigError(f"model = {name}: takes {DIGIT_IMAGES}, but the data have {form}; name a model of your own for them")
    factory = PaperCNN if name == PAPER_CNN else imported("model", name, ModelError)
    with torch.random.fork_rng(devices=[]), model_errors(f"making the model {name} for {form}"):
        torch.manual_seed(torch_seed(seed, Purpose.INITIAL_MODEL))
        model = factory()
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model = {name}: must return a torch.nn.Module, not {type(model).__name__}")
        scores = _tried(model, inputs)
    if (given := tuple(getattr(scores, "shape", ()))) != (due := (len(inputs), form.num_classes)):
        what = f"scores {given}" if given else f"a {type(scores).__name__}"
        raise ConfigError(f"model = {name}: gives {what} for inputs {tuple(inputs.shape)}: must be {due}")
    if not any(parameter.numel() for parameter in model.parameters()):
        raise ConfigError(f"model = {name}: has no parameters to train")
    require_device(device)
    if device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what CUDA's products need to be deterministic
        torch.use_deterministic_algorithms(True)
    return model.to(device)


def require_device(device: str) -> None:
    """Raise ConfigError where torch finds no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = cuda: torch finds no CUDA device here; use cpu")


@torch.no_grad()
def _tried(model: nn.Module, inputs: torch.Tensor) -> object:
    """What a model gives for inputs; layers that have waited to see some get their parameters."""
    model.eval()
    scores: object = model(inputs)
    model.train()
    return scores


def model_errors(where: str, but: type[Exception] = DncflError) -> AbstractContextManager[None]:
    """Turn what a user's model raises, but for one kind, into a ModelError with its place and traceback."""
    return errors_of_own(ModelError, where, but)


def _entries(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            yield name, buffer


def has_buffers(model: nn.Module) -> bool:
    """Whether buffers are a part of θ."""
    return any(buffer.is_floating_point() for buffer in model.buffers())


def counters(model: nn.Module) -> list[torch.Tensor]:
    """The buffers of whole numbers, which are no part of θ."""
    return [buffer for buffer in model.buffers() if not buffer.is_floating_point()]


def to_vector(model: nn.Module) -> Vector:
    """θ of a model."""
    parts = [tensor.detach().flatten().to("cpu", torch.float32) for _, tensor in _entries(model)]
    return torch.cat(parts).numpy()


def sha256_of(theta: Vector) -> str:
    """The hash of θ as little-endian float32, in the order of the model's parameters: a model's name in all records."""
    return sha256(theta.astype("<f4").tobytes()).hexdigest()


def load_vector(model: nn.Module, theta: Vector) -> None:
    """Set the parameters and floating-point buffers of a model to θ."""
    start = 0
    with torch.no_grad():
        for name, tensor in _entries(model):
            part = torch.from_numpy(theta[start : start + tensor.numel()]).view(tensor.shape)
            tensor.copy_(part.clamp(min=0) if name.endswith("running_var") else part)
            start += tensor.numel()


def sizes_of_tensors(model: nn.Module) -> tuple[int, ...]:
    """How many values of θ each tensor has, d in all."""
    return tuple(tensor.numel() for _, tensor in _entries(model))


def named_tensors(model: nn.Module, theta: Vector) -> dict[str, NDArray[np.float32]]:
    """θ cut into the model's named tensors, for files and messages."""
    tensors, start = {}, 0
    for name, tensor in _entries(model):
        tensors[name] = theta[start : start + tensor.numel()].reshape(tuple(tensor.shape))
        start += tensor.numel()
    return tensors
