"""The online decoder, against cases checked by hand and against galois."""

from typing import NamedTuple

import galois
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.payload import Payload, Symbols
from dncfl.server.decoder import Decoder, Equation


class Case(NamedTuple):
    """Who heard whom, what reached the PS, and what follows from it."""

    heard: list[list[int]]
    direct: list[int]
    relayed: list[list[int]]
    rank: int
    involved: tuple[int, ...]
    recoverable: tuple[int, ...]


BY_HAND = {
    "one message came, nothing else": Case([[1, 0], [1, 1]], [0, 1], [[0], [0]], 1, (1,), (1,)),
    "one codeword of two messages says nothing alone": Case([[1, 1], [0, 1]], [0, 0], [[0], [1]], 1, (0, 1), ()),
    "a node that heard nobody relays its own message": Case(
        [[1, 1, 0], [0, 1, 0], [0, 1, 1]], [0, 1, 0], [[1, 0], [0, 0], [0, 0]], 2, (0, 1), (0, 1)
    ),
    "a codeword and one of its two messages give the other": Case(
        [[1, 1, 0], [0, 1, 0], [0, 0, 1]], [0, 1, 0], [[0, 0], [1, 0], [0, 0]], 2, (0, 1), (0, 1)
    ),
    "one message is determined, two remain mixed": Case(
        [[1, 1, 0], [0, 1, 0], [0, 1, 1]], [0, 0, 0], [[1, 0], [1, 0], [0, 0]], 2, (0, 1, 2), (0,)
    ),
    "the third codeword of two unknowns is not new": Case(
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]], [0, 0, 0], [[1, 1], [0, 0], [1, 1]], 3, (0, 1, 2), (0, 1, 2)
    ),
    "nothing came": Case([[1, 1], [1, 1]], [0, 0], [[0], [0]], 0, (), ()),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND.keys())
def test_cases_by_hand(case: Case) -> None:
    code = DiversityNetworkCode(len(case.direct))
    decoder = Decoder(code.num_clients, code.p)
    messages = np.random.default_rng(0).integers(0, code.p, (code.num_clients, 5))
    for equation in code.equations(case.heard, case.direct, case.relayed):
        decoder.add(_said(equation, _payload(equation, messages, code.p)))
    assert (decoder.rank, decoder.involved, decoder.recoverable()) == (case.rank, case.involved, case.recoverable)
    recovered = decoder.messages()
    assert tuple(recovered) == case.recoverable
    assert all(np.array_equal(recovered[z].symbols, messages[z]) for z in recovered)


@pytest.mark.parametrize(("num_clients", "p"), [(2, 257), (10, 257), (20, 401), (40, 1601), (64, 4099)])
@pytest.mark.parametrize("outage", [0.2, 0.6, 0.85])
def test_random_cases_agree_with_galois(num_clients: int, p: int, outage: float) -> None:
    code, rng = DiversityNetworkCode(num_clients), np.random.default_rng(num_clients)
    assert code.p == p
    messages = rng.integers(0, p, (num_clients, 6))
    for _ in range(5):
        heard = rng.random((num_clients, num_clients)) > outage
        direct = rng.random(num_clients) > outage
        relayed = rng.random((num_clients, num_clients - 1)) > 0.5 + outage / 2
        equations = code.equations(heard, direct, relayed)
        decoder = Decoder(num_clients, p)
        order = rng.permutation(len(equations))
        new = [decoder.add(_said(equations[i], _payload(equations[i], messages, p))) for i in order]
        rank, recoverable = _by_galois(equations, p)
        assert decoder.rank == sum(new) == rank
        assert decoder.recoverable() == recoverable
        recovered = decoder.messages()
        assert tuple(recovered) == recoverable
        assert all(np.array_equal(recovered[z].symbols, messages[z]) for z in recoverable)


def test_what_is_recoverable_is_known_after_every_equation() -> None:
    code, rng = DiversityNetworkCode(6), np.random.default_rng(3)
    equations = code.equations(rng.random((6, 6)) > 0.4, rng.random(6) > 0.5, rng.random((6, 5)) > 0.7)
    decoder = Decoder(6, code.p)
    for count, equation in enumerate(equations, start=1):
        decoder.add(_said(equation, Payload(np.zeros(1, dtype=np.uint8))))
        assert (decoder.rank, decoder.recoverable()) == _by_galois(equations[:count], code.p)


def test_a_message_that_came_alone_is_given_back_without_a_copy() -> None:
    decoder, payload = Decoder(3, 257), Payload(np.arange(4, dtype=np.uint8))
    assert decoder.add(_said([0, 1, 0], payload))
    assert not decoder.add(_said([0, 5, 0], payload))
    assert decoder.messages()[1] is payload


def test_equations_that_add_nothing_are_kept_as_they_came() -> None:
    decoder = Decoder(2, 257)
    said = [_said(coefficients, Payload(np.zeros(3, dtype=np.uint8))) for coefficients in ([1, 0], [2, 0], [1, 1], [0, 7])]
    assert [decoder.add(equation) for equation in said] == [True, False, True, False]
    assert decoder.equations == tuple(said)


@pytest.mark.parametrize(("coefficients", "payload"), [([1, 0], [1, 2]), ([1, 0, 257], [1, 2]), ([0, 1, 0], [1, 2, 3])])
def test_impossible_equations_are_refused(coefficients: list[int], payload: list[int]) -> None:
    decoder = Decoder(3, 257)
    decoder.add(_said([1, 0, 0], Payload(np.array([1, 2], dtype=np.uint8))))
    with pytest.raises(ValueError, match="must be"):
        decoder.add(_said(coefficients, Payload(np.array(payload, dtype=np.uint8))))
    assert decoder.rank == len(decoder.equations) == 1


def _said(coefficients: ArrayLike, payload: Payload) -> Equation:
    """Who said it in which slot makes no difference to the decoder."""
    return Equation(0, 2, 1, np.asarray(coefficients, dtype=np.uint16), payload)


def _payload(equation: Symbols, messages: NDArray[np.int64], p: int) -> Payload:
    return Payload.of((equation.astype(np.int64) @ messages % p).astype(np.uint16), p)


def _by_galois(equations: Symbols, p: int) -> tuple[int, tuple[int, ...]]:
    """Rank and recoverable set by definition: e_z is in the row space iff adding it leaves the rank as it is."""
    field = galois.GF(p)
    if not len(equations):
        return 0, ()
    rank = int(np.linalg.matrix_rank(field(equations)))
    units = np.eye(equations.shape[1], dtype=np.uint16)
    inside = [int(np.linalg.matrix_rank(field(np.vstack([equations, unit])))) == rank for unit in units]
    return rank, tuple(int(z) for z in np.flatnonzero(inside))
