"""Encoding on a GPU: the bytes that it reads and writes in a second, against those of a plain copy there."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.tensors import TensorProduct
from dncfl.launch.bench.coding import check, columns_to_check
from dncfl.launch.bench.settings import HUGE, LARGE
from dncfl.launch.bench.timing import Figure, take_turns

COPIED = 2**31
"""Bytes of the copy: more than any cache holds."""

CALLS = 10
"""So many are waited for together, so that the time to start one hides behind the one before."""


def gpu_figures(seconds: float) -> Iterator[Figure]:
    """One codeword of ten messages for each relay slot; without a GPU, figures that say so."""
    for num_symbols in (LARGE, HUGE):
        name = f"encode on a GPU, M=10 d={num_symbols:,}: traffic against a copy"
        needed = 2 * COPIED + num_symbols * (10 + 9 * 2)
        if not torch.cuda.is_available():
            share, note = None, "no GPU here"
        elif torch.cuda.mem_get_info()[0] < 1.1 * needed:
            share, note = None, f"needs {1.1 * needed / 1e9:.0f} GB of the GPU's memory"
        else:
            share, note = _share(num_symbols, seconds), torch.cuda.get_device_name()
        yield Figure(name, share, "%", at_least=40.0, note=note)


def _share(num_symbols: int, seconds: float) -> float:
    code = DiversityNetworkCode(10)
    factors = np.ascontiguousarray(code.block(0).T)
    messages = torch.randint(0, 255, (10, num_symbols), dtype=torch.uint8, device="cuda")
    out = messages.new_empty((len(factors), num_symbols), dtype=torch.uint16)
    product = TensorProduct(factors, code.p, "cuda")
    product.of(messages, out)
    columns = columns_to_check(num_symbols)
    result = out.view(torch.int16)[:, columns].cpu().numpy()  # torch has few operations for uint16
    check("encoding on a GPU", factors, messages[:, columns].cpu().numpy(), code.p, {"the kernel": result})
    source = torch.ones(COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    candidates = {"copy": lambda: target.copy_(source), "encode": lambda: product.of(messages, out)}
    took = take_turns({name: _waited_for(call) for name, call in candidates.items()}, seconds)
    return 100 * ((messages.nbytes + out.nbytes) / took["encode"]) / (2 * COPIED / took["copy"])


def _waited_for(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()

    return run
