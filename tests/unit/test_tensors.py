"""Products of tensors over GF(p): galois is the judge. Triton's interpreter runs the kernel where there is no GPU."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import galois
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.kernels import EXACT_IN_FLOAT32
from dncfl.common.payload import Symbols
from dncfl.common.tensors import COLUMNS_AT_ONCE, MAX_ROWS, TensorProduct


def _messages(n: int, d: int, p: int, kind: type[np.unsignedinteger]) -> Symbols:
    return np.random.default_rng(n).integers(0, min(p, 255 if kind is np.uint8 else p), (n, d)).astype(kind)


def _judged(factors: Symbols, messages: Symbols, p: int) -> NDArray[np.unsignedinteger]:
    field = galois.GF(p)
    return np.asarray(field(factors.astype(np.int64)) @ field(messages.astype(np.int64)))


@pytest.mark.parametrize("num_clients", [2, 10, 32, 64, 255])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_codewords_agree_with_galois(num_clients: int, kind: type[np.unsignedinteger]) -> None:
    code = DiversityNetworkCode(num_clients, relay_slots=min(num_clients - 1, 12))
    messages, factors = _messages(num_clients, 301, code.p, kind), np.ascontiguousarray(code.block(1).T)
    combined = TensorProduct(factors, code.p, "cpu").of(torch.from_numpy(messages))
    assert combined.dtype == torch.uint16
    assert np.array_equal(combined.numpy(), _judged(factors, messages, code.p))


def test_long_messages_are_combined_in_parts() -> None:
    messages = _messages(2, COLUMNS_AT_ONCE + 5, 257, np.uint16)
    factors = np.array([[3, 256]], dtype=np.uint16)
    combined = TensorProduct(factors, 257, "cpu").of(torch.from_numpy(messages))
    assert np.array_equal(combined.numpy()[0], (3 * messages[0].astype(int) + 256 * messages[1].astype(int)) % 257)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        (torch.ones(2, 5, dtype=torch.uint8), r"messages are \(2, 5\): must be 3 rows"),
        (torch.ones(3, dtype=torch.uint8), r"messages are \(3,\): must be 3 rows"),
        (torch.ones(3, 5), r"messages are torch.float32: must be uint8 or uint16"),
        (torch.ones(3, 5, dtype=torch.uint8, device="meta"), r"messages are on meta: must be on cpu"),
    ],
)
def test_what_does_not_fit_is_refused(messages: torch.Tensor, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        TensorProduct(np.ones((2, 3), np.uint16), 257, "cpu").of(messages)


@pytest.mark.parametrize("out", [torch.empty(2, 6), torch.empty(2, 5), torch.empty(5, 2, dtype=torch.uint16).T])
def test_only_room_for_the_result_is_written_to(out: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"out must be \(2, 5\), contiguous, of torch.uint16, and on cpu"):
        TensorProduct(np.ones((2, 3), np.uint16), 257, "cpu").of(torch.ones(3, 5, dtype=torch.uint8), out)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The kernel's module, as triton's interpreter runs it."""
    pytest.importorskip("triton", reason="this build of torch is for processors only and has no triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delitem(sys.modules, "dncfl.common.gpu_kernel", raising=False)
    import dncfl.common.gpu_kernel

    yield dncfl.common.gpu_kernel
    del sys.modules["dncfl.common.gpu_kernel"]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("n", [1, 9, 10, MAX_ROWS])
def test_the_kernel_agrees_with_galois(kernel: ModuleType, n: int, kind: type[np.unsignedinteger]) -> None:
    p = 257
    messages = _messages(n, 2 * kernel.COLUMNS + 77, p, kind)
    factors = np.random.default_rng(0).integers(0, p, (3, n)).astype(np.uint16)
    assert np.array_equal(_by_kernel(kernel, factors, messages, p), _judged(factors, messages, p))


@pytest.mark.parametrize(("n", "p"), [(41, 257), (MAX_ROWS, 401), (2, 1153), (1, 1637)])
def test_the_kernel_is_exact_at_the_largest_sums(kernel: ModuleType, n: int, p: int) -> None:
    """Sums from n (p - 1)², as large as is allowed, downwards: every symbol in the last message, the largest in all others."""
    assert 2_500_000 < n * (p - 1) ** 2 + p < EXACT_IN_FLOAT32
    messages = np.full((n, p), p - 1, dtype=np.uint16)
    messages[-1] = np.arange(p)
    factors = np.full((2, n), p - 1, dtype=np.uint16)
    factors[1, -1] = 1
    expected = factors.astype(np.int64) @ messages.astype(np.int64) % p
    assert np.array_equal(_by_kernel(kernel, factors, messages, p), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("num_clients", [10, 32])
def test_a_gpu_gives_what_processors_give(num_clients: int) -> None:
    code = DiversityNetworkCode(num_clients)
    messages = torch.from_numpy(_messages(num_clients, 100_003, code.p, np.uint8))
    factors = np.ascontiguousarray(code.block(1).T)
    combined = TensorProduct(factors, code.p, "cuda").of(messages.cuda())
    assert combined.is_cuda
    assert torch.equal(combined.cpu(), TensorProduct(factors, code.p, "cpu").of(messages))


def test_the_blocks_of_a_code_are_multiplied_by_the_kernel_as_they_are(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their transposes are not contiguous, and the kernel reads factors row by row."""
    code = DiversityNetworkCode(10)
    messages, factors = _messages(10, 1500, code.p, np.uint8), code.block(3).T
    assert not factors.flags.c_contiguous
    product = TensorProduct(factors, code.p, "cpu")
    monkeypatch.setattr(product, "_by_kernel", True)
    assert np.array_equal(product.of(torch.from_numpy(messages)).numpy(), _judged(factors, messages, code.p))


def _by_kernel(kernel: ModuleType, factors: Symbols, messages: Symbols, p: int) -> Symbols:
    product = torch.full((len(factors), messages.shape[1]), 65_535, dtype=torch.int32).to(torch.uint16)
    kernel.multiply(torch.from_numpy(factors.astype(np.float32)), torch.from_numpy(messages), p, product)
    return product.numpy()


def test_the_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    """Without one: triton makes its code for compute capability 9.0, and a program has no stack: all rows stay in registers."""
    triton = pytest.importorskip("triton", reason="this build of torch is for processors only and has no triton")
    from dncfl.common.gpu_kernel import multiply_columns

    types = {"factors": "*fp32", "messages": "*u8", "product": "*u16", "d": "i32", "k": "i32", "p": "i32", "inverse": "fp32"}
    source = triton.compiler.ASTSource(
        multiply_columns, types | {"n": "constexpr", "block": "constexpr"}, constexprs={(7,): MAX_ROWS, (8,): 1024}
    )
    made = triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))
    assert made.asm["ptx"].count("fma.rn.f32") >= 8 * MAX_ROWS
    assert ".local" not in made.asm["ptx"]
    (tmp_path / "kernel.cubin").write_bytes(made.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    used = subprocess.run([tool, "-res-usage", tmp_path / "kernel.cubin"], capture_output=True, text=True, check=True)
    assert "STACK:0 " in used.stdout + used.stderr
