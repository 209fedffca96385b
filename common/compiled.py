"""Compiled functions: made once per machine, when their module is imported, and never in the middle of a slot.

Their types are in the signatures that they are compiled for, so their definitions have no hints for a type checker; and
they run as machine code, where no measure of coverage sees them.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # what numba builds its code with; needed for the address of an array
from numba import njit, types  # compiles loops over arrays to the vector instructions of the machine at hand
from numba.core import config
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic
from numba.np.numpy_support import carray as _carray

Compiled = Callable[..., Any]


def _use_widest_vectors() -> None:
    """Let numba use vectors of 512 bits where there are any: LLVM would prefer 256, and the codec gains a sixth.

    This is numba's own setting NUMBA_CPU_FEATURES, which the user's value of it replaces. It has no effect where numba has
    compiled something before.
    """
    features: str = get_host_cpu_features()  # type: ignore[no-untyped-call]  # numba does not annotate it
    if config.CPU_FEATURES is None and "+avx512bw" in features.split(","):  # type: ignore[attr-defined]  # set by numba itself
        config.CPU_FEATURES = f"{features},-prefer-256-bit"  # type: ignore[attr-defined]  # as above


_use_widest_vectors()


def compiled(*signatures: str, fuse: bool = False) -> Callable[[Compiled], Compiled]:
    """Compile a function for these signatures now; from the cache on disk where there is a place for one.

    It runs without Python's lock, so that the event loop goes on beside it. `fuse` lets a product and a sum be rounded once,
    in one instruction: for functions all of whose products and sums are exact, so that it changes nothing.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"} if fuse else False}

    def decorate(function: Compiled) -> Compiled:
        try:
            made: Compiled = njit(list(signatures), cache=True, **options)(function)
        except RuntimeError:  # numba's word for a system where no folder for caches can be written
            made = njit(list(signatures), **options)(function)
        return made

    return decorate


def inlined(function: Compiled) -> Compiled:
    """A part of compiled functions, put in where it is called."""
    part: Compiled = njit(inline="always")(function)
    return part


_intrinsic: Callable[[Compiled], Compiled] = intrinsic


@_intrinsic
def pointer(_, address):  # type: ignore[no-untyped-def]  # pragma: no cover
    """In compiled functions: the pointer to an address, for `carray`. Arrays of many arrays would cost vector instructions."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


@_intrinsic
def prefetch(_, address):  # type: ignore[no-untyped-def]  # pragma: no cover
    """In compiled functions: ask for the cache line at an address ahead of its use; any address may be asked for."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        where, number = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()), ir.IntType(32)
        instruction = ir.FunctionType(ir.VoidType(), [where.type, number, number, number])
        for_writing, keep_in_second_level, data = number(1), number(2), number(1)
        name = builder.module.declare_intrinsic("llvm.prefetch", [where.type], instruction)
        builder.call(name, [where, for_writing, keep_in_second_level, data])
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@_intrinsic
def narrow(_, source, target):  # type: ignore[no-untyped-def]  # pragma: no cover
    """In compiled functions: the low bytes of 64 words of 16 bits at one address to another; which were over 255, as bits.

    Written out because LLVM makes no mask of a loop, and branches in place of it took half as long as the product.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        words, octets = ir.VectorType(ir.IntType(16), 64), ir.VectorType(ir.IntType(8), 64)
        values = builder.load(builder.inttoptr(arguments[0], words.as_pointer()), align=2)
        builder.store(builder.trunc(values, octets), builder.inttoptr(arguments[1], octets.as_pointer()), align=1)
        too_large = builder.icmp_unsigned(">", values, ir.Constant(words, [255] * 64))
        return builder.bitcast(too_large, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@_intrinsic
def trailing_zeros(_, word):  # type: ignore[no-untyped-def]  # pragma: no cover
    """In compiled functions: the place of the lowest bit that is set in a word."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


carray: Compiled = _carray
"""In compiled functions: the array of a shape and type at a pointer."""
