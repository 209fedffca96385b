"""Encoding and decoding against the libraries that one could use instead: the same numbers, checked before they are timed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import galois
import numpy as np
from numpy.typing import NDArray

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.errors import BenchmarkError
from dncfl.common.field import PrimeField, determined
from dncfl.common.kernels import Product
from dncfl.common.payload import Payload, Symbols
from dncfl.launch.bench.settings import LARGE, OUTAGE, SMALL
from dncfl.launch.bench.timing import Figure, take_turns
from dncfl.server.elimination import eliminate, find_determined

Columns = NDArray[np.intp]


@dataclass(frozen=True)
class Candidate:
    """A way to encode; `columns` gives some columns of its result, None where it works over another field."""

    run: Callable[[], Any]
    columns: Callable[[Any, Columns], NDArray[np.integer]] | None


def coding_figures(seconds: float) -> Iterator[Figure]:
    """All figures, one by one; each comparison takes about `seconds`."""
    yield from _encoding(10, SMALL, {"galois": 10.0, "zfec": 8.0, "pyeclib": 2.0}, seconds)
    yield from _encoding(10, LARGE, {"galois": 35.0, "zfec": 8.0, "pyeclib": 2.0}, seconds)
    yield from _encoding(32, SMALL, {"galois": 5.0}, seconds)
    yield from _encoding(64, SMALL, {}, seconds)
    yield from _memory(seconds)
    for num_clients, times_galois, microseconds in ((10, 60.0, 10.0), (32, 4.0, 120.0), (64, None, 1000.0)):
        yield from _decoding(num_clients, times_galois, microseconds, seconds)


def _encoding(num_clients: int, num_symbols: int, goals: dict[str, float], seconds: float) -> Iterator[Figure]:
    """M - 1 codewords of M messages, by one thread."""
    place = f"M={num_clients} d={num_symbols:,}"
    p = DiversityNetworkCode(num_clients).p
    factors = np.ascontiguousarray(DiversityNetworkCode(num_clients).block(0).T)
    messages = np.random.default_rng(0).integers(0, 255, (num_clients, num_symbols), dtype=np.uint8)
    candidates, notes = {"symbols": _symbols(factors, messages, p), "wire": _wire(factors, messages, p)}, {}
    for make in (_galois, _numpy, _flint, _zfec, _pyeclib):
        name = make.__name__.removeprefix("_")
        try:
            candidates[name] = make(factors, messages, p)
        except ImportError:
            notes[name] = "not installed"
        except NotImplementedError as error:
            notes[name] = str(error)
    columns = columns_to_check(num_symbols)
    results = {name: one.columns(one.run(), columns) for name, one in candidates.items() if one.columns}
    check(f"encoding at {place}", factors, messages[:, columns], p, results)
    took = take_turns({name: candidate.run for name, candidate in candidates.items()}, seconds)
    rate = messages.size / took["symbols"] / 1e6
    yield Figure(f"encode {place}", rate, "million symbols/s")
    for name in ("galois", "numpy", "flint", "zfec", "pyeclib"):
        ratio = took[name] / took["symbols"] if name in took else None
        yield Figure(f"  {name} takes", ratio, "x", at_least=goals.get(name), note=notes.get(name, ""))
    yield Figure("  with packing for the wire", took["wire"] / took["symbols"], "x")


def columns_to_check(num_symbols: int) -> Columns:
    """The first and the last thousand: among them are the ends of all blocks that are not whole."""
    columns: Columns = np.r_[0:1000, num_symbols - 1000 : num_symbols]
    return columns


def check(what: str, factors: Symbols, messages: Symbols, p: int, results: Mapping[str, NDArray[np.integer]]) -> None:
    """Raises BenchmarkError unless all results (k × c) are factors (k × n) times messages (n × c) mod p, in int64."""
    expected = factors.astype(np.int64) @ messages.astype(np.int64) % p
    for name, result in results.items():
        if not np.array_equal(result, expected):
            raise BenchmarkError(f"{what}: {name} differs from plain arithmetic")


def _symbols(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    """Ours, into an array that is used again."""
    payloads = [Payload(message) for message in messages]
    out = np.empty((len(factors), messages.shape[1]), dtype=np.uint16)
    return Candidate(lambda: Product(factors, payloads, p, num_threads=1).symbols(out), lambda result, x: result[:, x])


def _wire(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    """Ours, as payloads for the wire."""
    payloads = [Payload(message) for message in messages]
    return Candidate(
        lambda: Product(factors, payloads, p, num_threads=1).packed(),
        lambda result, x: np.array([payload.symbols[x] for payload in result]),
    )


def _galois(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    field = galois.GF(p)
    a, b = field(factors), field(messages.astype(field.dtypes[0]))
    return Candidate(lambda: a @ b, lambda result, x: np.asarray(result)[:, x])


def _numpy(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    return Candidate(lambda: PrimeField(p).matmul(factors, messages), lambda result, x: result[:, x])


def _flint(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    from flint import nmod_mat

    if messages.size > 10**7:
        raise NotImplementedError("its matrices are made of lists, too large here")
    a, b = (nmod_mat(matrix.tolist(), p) for matrix in (factors, messages))
    return Candidate(
        lambda: a * b, lambda result, x: np.array([[int(result[i, int(j)]) for j in x] for i in range(len(factors))])
    )


def _zfec(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    """As many codewords over GF(256), checked by decoding from them and one message."""
    import zfec

    k, m = len(messages), len(messages) + len(factors)
    if k > 10:
        raise NotImplementedError("GF(256) has no such code of this size")
    blocks = [message.tobytes() for message in messages]
    encoder, wanted = zfec.Encoder(k, m), list(range(k, m))
    if zfec.Decoder(k, m).decode([blocks[0], *encoder.encode(blocks, wanted)], [0, *wanted]) != blocks:
        raise BenchmarkError("zfec does not decode what it encoded")
    return Candidate(lambda: encoder.encode(blocks, wanted), None)


def _pyeclib(factors: Symbols, messages: Symbols, p: int) -> Candidate:
    """As many codewords over GF(256) by Intel's isa_l, checked by decoding from them and one message."""
    from pyeclib.ec_iface import VALID_EC_TYPES, ECDriver

    if len(messages) > 10:
        raise NotImplementedError("GF(256) has no such code of this size")
    if "isa_l_rs_cauchy" not in VALID_EC_TYPES:
        raise NotImplementedError("no isa_l on this system")
    driver = ECDriver(k=len(messages), m=len(factors), ec_type="isa_l_rs_cauchy")
    whole = messages.tobytes()
    if driver.decode(driver.encode(whole)[len(factors) :]) != whole:
        raise BenchmarkError("pyeclib does not decode what it encoded")
    return Candidate(lambda: driver.encode(whole), None)


def _memory(seconds: float) -> Iterator[Figure]:
    """Bytes that encoding reads and writes in a second, against those of a plain copy; and what a second thread gains."""
    code = DiversityNetworkCode(10)
    payloads = [Payload(m) for m in np.random.default_rng(0).integers(0, 255, (10, LARGE), dtype=np.uint8)]
    factors = np.ascontiguousarray(code.block(0).T)
    out = np.empty((9, LARGE), dtype=np.uint16)
    source = np.ones(out.nbytes, dtype=np.uint8)
    target = np.empty_like(source)
    one, two = (Product(factors, payloads, code.p, num_threads=number) for number in (1, 2))
    candidates = {"copy": lambda: np.copyto(target, source), "one": lambda: one.symbols(out), "two": lambda: two.symbols(out)}
    took = take_turns(candidates, seconds)
    traffic = (sum(payload.plane.nbytes for payload in payloads) + out.nbytes) / took["one"]
    share = 100 * traffic / (2 * source.nbytes / took["copy"])
    yield Figure(f"encode traffic against a memory copy, M=10 d={LARGE:,}", share, "%", at_least=29.0)
    yield Figure(f"encode on two threads, M=10 d={LARGE:,}", took["one"] / took["two"], "x", at_least=1.8)


def _decoding(num_clients: int, times_galois: float | None, microseconds: float, seconds: float) -> Iterator[Figure]:
    """The rank of all equations of a round, and the plan: which messages are recoverable, and how the missing follow."""
    code = DiversityNetworkCode(num_clients)
    rng = np.random.default_rng(1)
    heard, direct, relayed = (
        rng.random(shape) > OUTAGE for shape in ((num_clients, num_clients), num_clients, (num_clients, num_clients - 1))
    )
    equations = code.equations(heard, direct, relayed)
    equations = np.ascontiguousarray(equations[rng.permutation(len(equations))])
    rows = np.zeros((num_clients, 2 * num_clients))
    pivots, places = (np.zeros(num_clients, dtype=np.int64) for _ in range(2))
    involved, new = np.zeros(num_clients, dtype=bool), np.zeros(len(equations), dtype=bool)
    field = galois.GF(code.p)
    by_columns = field(equations.T.copy())

    def rank() -> int:
        found: int = eliminate(rows, pivots, 0, equations, float(code.p), involved, new)
        return found

    def plan() -> NDArray[np.float64]:
        find_determined(rows, pivots, rank(), places)
        return rows[places[places >= 0], num_clients:]

    def galois_plan() -> NDArray[np.unsignedinteger]:
        """Which equations are independent, and their reduction beside the matrix that made it."""
        first = np.asarray(by_columns.row_reduce())
        independent = [int(np.flatnonzero(row)[0]) for row in first if row.any()]
        augmented = np.hstack([equations[independent], np.eye(len(independent), dtype=np.uint16)])
        return np.asarray(field(augmented).row_reduce(ncols=num_clients))

    _check_plan(equations, code.p, plan(), np.flatnonzero(places >= 0), np.flatnonzero(new), galois_plan(), num_clients)
    took = take_turns({"rank": rank, "plan": plan, "galois": galois_plan}, seconds)
    place = f"M={num_clients}, {len(equations)} equations"
    yield Figure(f"online rank, {place}", 1e6 * took["rank"], "µs", at_most=microseconds)
    yield Figure(f"decode plan, {place}: galois takes", took["galois"] / took["plan"], "x", at_least=times_galois)


def _check_plan(
    equations: Symbols,
    p: int,
    plan: NDArray[np.float64],
    recoverable: NDArray[np.intp],
    new: NDArray[np.intp],
    reduced: NDArray[np.unsignedinteger],
    num_clients: int,
) -> None:
    """Raises BenchmarkError unless galois recovers the same messages and the plan's combinations of equations give them."""
    if set(determined(reduced[:, :num_clients])) != set(recoverable.tolist()):
        raise BenchmarkError(f"decoding at M={num_clients}: galois recovers other messages")
    combined = plan[:, : len(new)].astype(np.int64) @ equations[new].astype(np.int64) % p
    if not np.array_equal(combined, np.eye(num_clients, dtype=np.int64)[recoverable]):
        raise BenchmarkError(f"decoding at M={num_clients}: the plan does not give the messages")
