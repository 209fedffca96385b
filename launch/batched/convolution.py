"""Convolution and max-pooling of many models at once, as one matrix product per layer.

A pooling window of 2 × 2 outputs of a k × k convolution sees a patch of (k + 1) × (k + 1) inputs. With the weights laid
into that patch at four places, one product of a (4·outputs × inputs·(k+1)²) matrix with all patches gives the four values
of every window, and the pool is the largest of them. Tensors have the samples last, so that every copy runs along them.
"""

from typing import Any

import torch
from torch.nn.functional import pad


def pooled_convolution(images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """2 × 2 max-pooling of a convolution without padding: (models, outputs, side, side, n).

    images: (models, inputs, height, width, n), height and width even; weight: (models, outputs, inputs, k, k), k odd;
    bias: (models, outputs).
    """
    places = [(down, right) for down in range(2) for right in range(2)]
    laid_out = torch.stack([pad(weight, (right, 1 - right, down, 1 - down)) for down, right in places], dim=1)
    pooled: torch.Tensor = _LargestOfFour.apply(images, laid_out.flatten(1, 2).flatten(2))
    return pooled + bias[:, :, None, None, None]


class _LargestOfFour(torch.autograd.Function):
    """The product with all patches, and the largest of each four values; where several are, the first, as torch has it.

    That matters: on a plain background all four are equal.
    """

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        models, inputs, height, _, n = images.shape
        patch = int((weight.shape[2] // inputs) ** 0.5)
        side = (height - patch) // 2 + 1
        by_model, by_input, by_row, by_column, by_sample = images.stride()
        strides = (by_model, by_input, by_row, by_column, 2 * by_row, 2 * by_column, by_sample)
        patches = images.as_strided((models, inputs, patch, patch, side, side, n), strides).reshape(models, weight.shape[2], -1)
        a, b, c, d = torch.bmm(weight, patches).view(models, 4, -1, side * side * n).unbind(1)
        upper, lower = torch.maximum(a, b), torch.maximum(c, d)
        ctx.save_for_backward(patches, weight, lower > upper, b > a, d > c)
        ctx.shape, ctx.patch, ctx.side = images.shape, patch, side
        return torch.maximum(upper, lower).view(models, -1, side, side, n)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
        patches, weight, is_lower, b_over_a, d_over_c = ctx.saved_tensors
        gradient = gradients[0].reshape(is_lower.shape)
        d_values = gradient.new_empty(len(weight), 4, *is_lower.shape[1:])
        for pair, mine, first in ((d_values[:, :2], ~is_lower, ~b_over_a), (d_values[:, 2:], is_lower, ~d_over_c)):
            torch.mul(gradient, mine, out=pair[:, 1])
            torch.mul(pair[:, 1], first, out=pair[:, 0])
            pair[:, 1] -= pair[:, 0]
        d_values = d_values.view(len(weight), weight.shape[1], -1)
        d_weight = torch.bmm(d_values, patches.transpose(1, 2))
        if not ctx.needs_input_grad[0]:
            return None, d_weight
        return _gathered(torch.bmm(weight.transpose(1, 2), d_values), ctx.shape, ctx.patch, ctx.side), d_weight


def _gathered(d_patches: torch.Tensor, shape: tuple[int, ...], patch: int, side: int) -> torch.Tensor:
    """The gradient by the images from that by their patches: a sum over the patches that a pixel is in, by 2 × 2 blocks."""
    models, inputs, height, width, n = shape
    blocks = patch // 2
    parts = d_patches.view(models, inputs, blocks, 2, blocks, 2, side, side, n).permute(0, 1, 2, 4, 6, 3, 7, 5, 8)
    d_images = d_patches.new_zeros(models, inputs, height // 2, 2, width // 2, 2, n)
    for down in range(blocks):
        for right in range(blocks):
            d_images[:, :, down : down + side, :, right : right + side] += parts[:, :, down, right]
    return d_images.view(shape)
