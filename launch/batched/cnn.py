"""The letter's classifier, `dncfl.common.tasks.model.PaperCNN`, for many models at once, each with its own samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import relu

from dncfl.launch.batched.convolution import pooled_convolution

KEEP = 0.5
"""The probability with which dropout keeps a channel or a value."""


@dataclass(frozen=True)
class Dropout:
    """What dropout multiplies by: `channels` (models, 20, n) after the second convolution, `hidden` (models, 50, n)."""

    channels: torch.Tensor
    hidden: torch.Tensor

    @classmethod
    def draw(cls, generators: Sequence[torch.Generator], n: int) -> "Dropout":
        """Masks for n samples of each model, from the model's own generator."""
        return cls(*(torch.stack([_mask(size, n, generator) for generator in generators]) for size in (20, 50)))


def _mask(size: int, n: int, generator: torch.Generator) -> torch.Tensor:
    return torch.empty(size, n, device=generator.device).bernoulli_(KEEP, generator=generator).div_(KEEP)


def scores(parameters: Sequence[torch.Tensor], images: torch.Tensor, dropout: Dropout) -> torch.Tensor:
    """Class scores (models, 10, n) of images (models, 1, 28, 28, n).

    parameters: those of PaperCNN in their order, each with the models as first dimension.
    """
    weight1, bias1, weight2, bias2, weight3, bias3, weight4, bias4 = parameters
    x = relu(pooled_convolution(images, weight1, bias1))
    x = pooled_convolution(x, weight2, bias2) * dropout.channels[:, :, None, None, :]  # the same for all values of a window
    x = relu(x).flatten(1, 3)
    x = relu(torch.baddbmm(bias3[:, :, None], weight3, x)) * dropout.hidden
    return torch.baddbmm(bias4[:, :, None], weight4, x)
