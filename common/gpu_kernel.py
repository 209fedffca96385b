"""The product over GF(p) on a GPU: each program takes some columns of all messages and writes all combinations of them.

The kernel is read by triton, which takes its own types from it, and runs where no measure of coverage sees it.
"""

import torch
import triton  # compiles this kernel for the GPU at hand; it comes with torch
import triton.language as tl

COLUMNS = 1024
"""Columns of a program: eight for each thread, which are eight bytes of a message and sixteen of a combination at once."""


def multiply(factors: torch.Tensor, messages: torch.Tensor, p: int, product: torch.Tensor) -> None:
    """factors (k × n, float32) times messages (n × d) into product (k × d, uint16), all contiguous and on one GPU.

    All sums, and p more, must be below `kernels.EXACT_IN_FLOAT32`.
    """
    n, d = messages.shape
    with torch.cuda.device_of(messages):  # type: ignore[no-untyped-call]  # torch does not annotate it
        multiply_columns[(triton.cdiv(d, COLUMNS),)](factors, messages, product, d, len(factors), p, 1 / p, n, COLUMNS)


@triton.jit  # type: ignore[untyped-decorator]  # triton is not there for every type checker
def multiply_columns(  # type: ignore[no-untyped-def]  # pragma: no cover
    factors, messages, product, d, k, p, inverse, n: tl.constexpr, block: tl.constexpr
):
    """The columns of one program. The quotient is as in `kernels.exact_type`."""
    columns = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = columns < d
    rows: tl.tuple = ()
    for _ in tl.static_range(n):
        rows += (tl.load(messages + columns, mask=inside, other=0).to(tl.float32),)
        messages += d
    for _ in range(k):
        total = tl.full((block,), 0, tl.float32)
        for i in tl.static_range(n):
            total += tl.load(factors + i) * rows[i]
        residue = total - tl.floor(total * inverse + inverse / 2) * p
        tl.store(product + columns, residue.to(tl.uint16), mask=inside)
        factors += n
        product += d
