"""The product over GF(p) of messages that are tensors, on the device where they are: what `kernels.Product` is for payloads.

Few messages on a GPU are combined by `dncfl.common.gpu_kernel`, in one pass over memory. All others are multiplied in float64
by torch, where no setting of its precision for float32 matters.
"""

from importlib.util import find_spec

import numpy as np
import torch

from dncfl.common.kernels import EXACT_IN_FLOAT32
from dncfl.common.payload import Symbols

COLUMNS_AT_ONCE = 2**18
"""Columns that are in float64 at a time, where they take four or eight times the room of messages."""

MAX_ROWS = 16
"""The kernel keeps some columns of all messages in registers, which would not do for many more."""


class TensorProduct:
    """factors (k × n) over GF(p), ready on a device to be multiplied with messages there.

    With the transpose of `DiversityNetworkCode.block(m)` as factors it gives the codewords of node m that holds all
    messages; the factors of a message that it does not hold are zero.
    """

    def __init__(self, factors: Symbols, p: int, device: torch.device | str) -> None:
        self.p = p
        self._k, self._n = factors.shape
        self._factors = torch.from_numpy(np.ascontiguousarray(factors)).to(device, torch.float64)
        self._in_float32 = self._factors.float()
        fits_kernel = self._n <= MAX_ROWS and self._n * (p - 1) ** 2 + p < EXACT_IN_FLOAT32
        self._by_kernel = fits_kernel and self._factors.is_cuda and find_spec("triton") is not None

    def of(self, messages: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """The k combinations (k × d), uint16, of messages (n × d), uint8 or uint16; in `out` if given.

        Raises ValueError unless messages are n, of such a type, on the device of the factors, and fit `out`.
        """
        if messages.ndim != 2 or len(messages) != self._n:
            raise ValueError(f"messages are {tuple(messages.shape)}: must be {self._n} rows, one for each factor")
        if messages.dtype not in (torch.uint8, torch.uint16):
            raise ValueError(f"messages are {messages.dtype}: must be uint8 or uint16")
        if messages.device != self._factors.device:
            raise ValueError(f"messages are on {messages.device}: must be on {self._factors.device}, as the factors are")
        shape = self._k, messages.shape[1]
        product = messages.new_empty(shape, dtype=torch.uint16) if out is None else out
        as_needed = product.dtype == torch.uint16 and product.device == messages.device and product.is_contiguous()
        if product.shape != shape or not as_needed:
            raise ValueError(f"out must be {shape}, contiguous, of torch.uint16, and on {messages.device}")
        if self._by_kernel:
            from dncfl.common.gpu_kernel import multiply  # imports triton, which most builds of torch for GPUs bring

            multiply(self._in_float32, messages.contiguous(), self.p, product)
        else:
            for first in range(0, messages.shape[1], COLUMNS_AT_ONCE):
                columns = slice(first, first + COLUMNS_AT_ONCE)
                product[:, columns] = (self._factors @ messages[:, columns].to(torch.float64)).remainder_(self.p)
        return product
