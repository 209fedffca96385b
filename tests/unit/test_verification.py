"""Liars among the relays: what is right is known from how the round was made up, from galois, and from trying all subsets."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dncfl.common.code import DiversityNetworkCode
from dncfl.common.errors import ChecksumError
from dncfl.common.message import decode_message, encode_message
from dncfl.common.payload import Payload
from dncfl.server.decoder import Decoder, Equation
from dncfl.server.verification import Verdict, verify
from tests.unit.updates import format_of, update_of

Messages = dict[int, NDArray[np.integer]]

SIDE = format_of(0).num_symbols
ROUND = 7
LEVELS = 257
"""With p = 257 some symbols of messages are escaped, too."""


class Round:
    """One attempt of M honest nodes with d parameters, at random outages; liars come later."""

    def __init__(self, num_clients: int, seed: int, outage: float = 0.2, d: int = 30) -> None:
        self.code = DiversityNetworkCode(num_clients)
        self.rng = np.random.default_rng(seed)
        self.messages = {m: self.message(m, d) for m in range(num_clients)}
        self.equations = self.attempt(1, outage)

    def message(self, sender: int, d: int) -> Payload:
        levels = self.rng.integers(0, LEVELS, d, dtype=np.uint16)
        return encode_message(update_of(levels), self.code.p, round=ROUND, sender=sender)

    def attempt(self, attempt: int, outage: float) -> list[Equation]:
        """What reached the PS."""
        M = self.code.num_clients
        said: list[Equation] = []
        for m in range(M):
            held = {z: self.messages[z] for z in range(M) if z == m or self.rng.random() > outage}
            payloads = [self.messages[m], *self.code.codewords(m, held)]
            said += [
                Equation(m, slot, attempt, self.code.coefficients(m, slot, held), payload)
                for slot, payload in enumerate(payloads, start=1)
                if self.rng.random() > outage
            ]
        return [said[i] for i in self.rng.permutation(len(said))]

    def verify(self, equations: Sequence[Equation], max_liars: int = 3) -> Verdict:
        return verify(equations, self.code.num_clients, self.code.p, _proves_itself, np.random.default_rng(1), max_liars)

    def changed(self, equation: Equation, change: NDArray[np.int64]) -> Equation:
        """The same equation with something added to its symbols."""
        symbols = (equation.payload.symbols + change) % self.code.p
        return replace(equation, payload=Payload.of(symbols.astype(np.uint16), self.code.p))

    def error(self, kind: str, equation: Equation) -> NDArray[np.int64]:
        """What a liar of this kind adds to a codeword."""
        n = len(equation.payload)
        error = np.zeros(n, dtype=np.int64)
        match kind:
            case "noise":
                error = self.rng.integers(1, self.code.p, n)
            case "bit":
                x = self.rng.integers(n)
                error[x] = (int(equation.payload.symbols[x]) ^ 1 << int(self.rng.integers(8))) - int(
                    equation.payload.symbols[x]
                )
            case "escape":
                x = self.rng.choice(np.flatnonzero(equation.payload.symbols != 256))
                error[x] = 256 - int(equation.payload.symbols[x])
            case "constant":
                error[:] = 1
        return error

    def with_liars(self, liars: Collection[int], kinds: Sequence[str], share: float = 0.7) -> list[Equation]:
        """The equations when the liars change some of their codewords, the first one always, each in its own way."""
        chosen = dict(zip(liars, (kinds[int(self.rng.integers(len(kinds)))] for _ in liars), strict=True))
        lied: set[int] = set()
        told = []
        for equation in self.equations:
            m = equation.sender
            if equation.slot > 1 and m in chosen and (m not in lied or self.rng.random() < share):
                lied.add(m)
                told.append(self.changed(equation, self.error(chosen[m], equation)))
            else:
                told.append(equation)
        return told

    def leaves_enough_without(self, number: int) -> bool:
        """Whether the equations determine every message whichever nodes' codewords are left out, as many as this."""
        return all(
            _rank(_without(self.equations, nodes), self.code.p) == self.code.num_clients
            for nodes in combinations(range(self.code.num_clients), number)
        )


KINDS = ["noise", "bit", "escape", "constant"]


def _proves_itself(sender: int, payload: Payload) -> bool:
    try:
        decode_message(payload, format_of(len(payload) - SIDE, LEVELS), round=ROUND, sender=sender)
    except ChecksumError:
        return False
    return True


def _without(equations: Iterable[Equation], nodes: Collection[int]) -> list[Equation]:
    return [equation for equation in equations if equation.slot == 1 or equation.sender not in nodes]


def _rank(equations: Sequence[Equation], p: int) -> int:
    return int(np.linalg.matrix_rank(galois.GF(p)([e.coefficients for e in equations]))) if equations else 0


def _solved(equations: Sequence[Equation], num_clients: int, p: int) -> Messages | None:
    """By definition and galois: the messages that equations determine; None if they contradict each other."""
    if not equations:
        return {}
    field = galois.GF(p)
    system = field([[*e.coefficients, *e.payload.symbols.tolist()] for e in equations])
    reduced = np.asarray(system.row_reduce(ncols=num_clients))
    zero = ~np.any(reduced[:, :num_clients], axis=1)
    if np.any(reduced[zero]):
        return None
    single = reduced[np.count_nonzero(reduced[:, :num_clients], axis=1) == 1]
    return {int(np.argmax(row[:num_clients] != 0)): row[num_clients:] for row in single}


def _same(messages: Mapping[int, Payload], others: Mapping[int, Payload]) -> bool:
    return list(messages) == list(others) and _all_right(messages, others)


def _all_right(messages: Mapping[int, Payload], true: Mapping[int, Payload]) -> bool:
    return all(np.array_equal(message.symbols, true[z].symbols) for z, message in messages.items())


def _first(make: Callable[[int], Round], suits: Callable[[Round], bool]) -> Round:
    """The first round, by its seed, that suits."""
    return next(case for case in map(make, range(1000)) if suits(case))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 9), st.floats(0, 0.8), st.integers(0, 2**32), st.integers(1, 2))
def test_without_liars_the_verdict_is_the_decoders(num_clients: int, outage: float, seed: int, attempts: int) -> None:
    case = Round(num_clients, seed, outage)
    equations = case.equations + (case.attempt(2, outage) if attempts == 2 else [])
    decoder = Decoder(num_clients, case.code.p)
    for equation in equations:
        decoder.add(equation)
    verdict = case.verify(decoder.equations)
    assert _same(verdict.messages, decoder.messages())
    assert _all_right(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.dropped, verdict.contradiction, verdict.settled) == ((), (), False, True)


def test_nothing_came() -> None:
    verdict = Round(3, 0).verify([])
    assert (verdict.messages, verdict.suspects, verdict.dropped, verdict.settled) == ({}, (), (), True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_one_wrong_codeword_is_noticed_named_and_left_out(kind: str, seed: int) -> None:
    case = Round(6, seed)
    assert case.leaves_enough_without(1)
    told = case.with_liars([seed], [kind], share=0)
    assert sum(a is not b for a, b in zip(told, case.equations, strict=True)) == 1
    verdict = case.verify(told)
    assert _same(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.settled, verdict.contradiction) == ((seed,), True, True)
    assert set(verdict.dropped) == {equation for equation in told if equation.slot > 1 and equation.sender == seed}


@pytest.mark.parametrize(
    ("num_clients", "num_liars"), [(4, 1), (4, 2), (4, 3), (6, 1), (6, 2), (6, 3), (10, 1), (10, 2), (10, 3)]
)
@pytest.mark.parametrize("seed", range(0, 100, 10))
def test_liars_are_named_exactly_where_whoever_is_left_out_enough_is_left(num_clients: int, num_liars: int, seed: int) -> None:
    case = _first(
        lambda more: Round(num_clients, 1000 * seed + more, outage=0.25), lambda case: case.leaves_enough_without(num_liars)
    )
    liars = case.rng.choice(num_clients, num_liars, replace=False).tolist()
    lying = {e.sender for e in case.equations if e.slot > 1} & set(liars)
    verdict = case.verify(case.with_liars(liars, KINDS))
    assert _same(verdict.messages, case.messages)
    assert verdict.suspects == tuple(sorted(lying))
    assert verdict.settled


@settings(deadline=None, max_examples=150)
@given(st.integers(2, 8), st.floats(0.1, 0.9), st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([0, 0.5, 1]))
def test_no_message_is_wrong_and_no_honest_node_is_named(
    num_clients: int, outage: float, seed: int, num_liars: int, share: float
) -> None:
    """However little came; and what the honest nodes' equations determine is always recovered."""
    case = Round(num_clients, seed, outage)
    liars = case.rng.choice(num_clients, min(num_liars, num_clients), replace=False).tolist()
    verdict = case.verify(case.with_liars(liars, KINDS, share))
    assert _all_right(verdict.messages, case.messages)
    assert set(verdict.suspects) <= set(liars)
    honest = _solved(_without(case.equations, liars), num_clients, case.code.p)
    assert honest is not None
    assert verdict.messages.keys() >= honest.keys()


def _recovered(told: Sequence[Equation], liars: Collection[int], case: Round) -> Messages | None:
    """By definition: what proves itself if exactly these lied; None if the others cannot all have told the truth."""
    solved = _solved(_without(told, liars), case.code.num_clients, case.code.p)
    if solved is None:
        return None
    right = {z: row for z, row in solved.items() if _proves_itself(z, Payload.of(row.astype(np.uint16), case.code.p))}
    return right if solved.keys() - right.keys() <= set(liars) else None


def _is_convicted(node: int, told: Sequence[Equation], messages: Messages, p: int) -> bool:
    """Whether the node said something that these messages contradict."""
    return any(
        np.any(sum(int(e.coefficients[z]) * messages[z].astype(int) for z in involved) % p != e.payload.symbols)
        for e in told
        if e.sender == node and messages.keys() >= (involved := set(np.flatnonzero(e.coefficients).tolist()))
    )


@pytest.mark.parametrize("seed", range(60))
def test_small_rounds_agree_with_trying_all_subsets(seed: int) -> None:
    num_clients = 4
    case = Round(num_clients, seed, outage=[0.3, 0.5, 0.7][seed % 3], d=4)
    told = case.with_liars(case.rng.choice(num_clients, 1 + seed % 2, replace=False).tolist(), KINDS)
    subsets = [set(nodes) for number in range(num_clients + 1) for nodes in combinations(range(num_clients), number)]
    recovered = [(nodes, found) for nodes in subsets if (found := _recovered(told, nodes, case)) is not None]
    smallest = [(nodes, found) for nodes, found in recovered if not any(other < nodes for other, _ in recovered)]
    common = set.intersection(*(nodes for nodes, _ in smallest))
    convicted = [
        nodes
        for nodes, found in smallest
        if all(node in common or _is_convicted(node, told, found, case.code.p) for node in nodes)
    ]
    sure = convicted or [nodes for nodes, _ in smallest]
    verdict = case.verify(told, max_liars=num_clients)
    assert verdict.settled == (len(sure) == 1)
    assert verdict.suspects == tuple(sorted(set.intersection(*sure)))
    assert all(verdict.messages.keys() >= found.keys() for _, found in smallest)


def test_a_failing_message_without_surplus_is_not_given_and_nobody_is_named() -> None:
    """Node 2's message is solved from one codeword: its relay or itself lied, and only more equations can tell."""
    case = Round(3, 0, outage=0)
    told = [e for e in case.equations if (e.sender, e.slot) in {(0, 1), (1, 1), (0, 2)}]
    told = [case.changed(e, case.error("bit", e)) if e.slot > 1 else e for e in told]
    verdict = case.verify(told)
    assert _same(verdict.messages, {z: case.messages[z] for z in (0, 1)})
    assert (verdict.suspects, verdict.dropped, verdict.contradiction, verdict.settled) == ((), (), True, False)
    more = [e for e in case.equations if (e.sender, e.slot) == (1, 2)]
    verdict = case.verify(told + more)
    assert _same(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.dropped, verdict.settled) == ((0,), (told[[e.slot for e in told].index(2)],), True)


def test_who_is_contradicted_by_known_messages_alone_is_named_whatever_the_number() -> None:
    case = Round(6, 0, outage=0)
    verdict = case.verify(case.with_liars([0, 1, 2, 3, 5], ["noise"]), max_liars=0)
    assert _same(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.settled) == ((0, 1, 2, 3, 5), True)


def _pretend(case: Round, told: Sequence[Equation], liars: Collection[int], other: Payload, z: int) -> list[Equation]:
    """The liars' codewords are made as if node z's message were another."""
    difference = other.symbols.astype(np.int64) - case.messages[z].symbols
    return [case.changed(e, int(e.coefficients[z]) * difference) if e.slot > 1 and e.sender in liars else e for e in told]


@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_two_liars_who_agree_on_another_message_are_outvoted(valid: bool, seed: int) -> None:
    case = _first(lambda more: Round(8, 1000 * seed + more, outage=0.25), lambda case: case.leaves_enough_without(4))
    came = {e.sender for e in case.equations if e.slot == 1}
    z = next(z for z in range(8) if z not in came or z == 7)
    case.equations = [e for e in case.equations if (e.sender, e.slot) != (z, 1)]
    assert case.leaves_enough_without(4)
    liars = [m for m in range(8) if m != z][:2]
    other = case.message(z, 30) if valid else case.message(1 + z, 30)
    told = _pretend(case, case.equations, liars, other, z)
    verdict = case.verify(told)
    assert _same(verdict.messages, case.messages)
    relayed = {e.sender for e in told if e.slot > 1 and e.coefficients[z]}
    assert verdict.suspects == tuple(m for m in liars if m in relayed)
    assert verdict.settled


@pytest.mark.parametrize("seed", range(10))
def test_of_two_messages_that_both_pass_neither_is_taken_where_as_many_nodes_say_so(seed: int) -> None:
    """All but node 4's message came. Nodes 0 and 1 make up another that passes, nodes 2 and 3 tell the truth."""
    case = Round(5, seed, outage=0)
    told = [e for e in case.equations if e.sender < 4 and e.slot in (1, 2, 3)]
    verdict = case.verify(_pretend(case, told, [0, 1], case.message(4, 30), 4))
    assert _same(verdict.messages, {z: case.messages[z] for z in range(4)})
    assert (verdict.suspects, verdict.settled) == ((), False)


def test_colluding_liars_without_surplus_give_no_wrong_message_unless_it_passes() -> None:
    case = Round(5, 3, outage=0)
    told = [e for e in case.equations if (e.sender < 2 and e.slot == 2) or (e.sender < 4 and e.slot == 1)]
    verdict = case.verify(_pretend(case, told, [0, 1], case.message(3, 30), 4))
    assert _same(verdict.messages, {z: case.messages[z] for z in range(4)})
    assert (verdict.suspects, verdict.settled) == ((), False)


@pytest.mark.parametrize("relays", [0, 1, 4])
def test_a_damaged_message_is_dropped_and_solved_for(relays: int) -> None:
    case = Round(4, 0, outage=0)
    told = [e for e in case.equations if e.slot == 1 or 0 < e.sender < relays]
    damaged = next(i for i, e in enumerate(told) if (e.sender, e.slot) == (2, 1))
    told[damaged] = case.changed(told[damaged], case.error("bit", told[damaged]))
    verdict = case.verify(told)
    assert _same(verdict.messages, {z: case.messages[z] for z in range(4) if z != 2 or relays > 1})
    assert (verdict.suspects, verdict.dropped, verdict.contradiction, verdict.settled) == ((2,), (told[damaged],), True, True)


def test_a_damaged_message_and_liars_at_once() -> None:
    case = Round(8, 0, outage=0.1)
    told = case.with_liars([1, 2, 5], KINDS)
    own = next(i for i, e in enumerate(told) if e.slot == 1 and e.sender == 4)
    told[own] = case.changed(told[own], case.error("noise", told[own]))
    verdict = case.verify(told)
    assert _same(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.settled) == ((1, 2, 4, 5), True)


def test_a_node_that_tells_the_ps_two_messages_is_named_and_the_first_counts() -> None:
    case = Round(4, 0, outage=0)
    second = Equation(1, 1, 2, case.code.coefficients(1, 1, [1]), case.message(1, 30))
    verdict = case.verify([*case.equations, second])
    assert _same(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.settled) == ((1,), True)
    assert second in verdict.dropped


def test_a_node_whose_message_never_passes_makes_no_relay_a_suspect() -> None:
    case = Round(5, 0, outage=0)
    wrong = case.message(3, 30)
    told = _pretend(case, case.equations, range(5), wrong, 4)
    told = [e for e in told if (e.sender, e.slot) != (4, 1) and e.slot < 4]
    verdict = case.verify(told)
    assert _same(verdict.messages, {z: case.messages[z] for z in range(4)})
    assert not set(verdict.suspects) - {4}


@pytest.mark.parametrize("num_liars", [0, 1, 2])
def test_sixty_four_nodes(num_liars: int) -> None:
    case = Round(64, 5)
    assert case.code.p == 4099
    verdict = case.verify(case.with_liars([9, 40][:num_liars], KINDS))
    assert _same(verdict.messages, case.messages)
    assert (verdict.suspects, verdict.settled) == ((9, 40)[:num_liars], True)


@pytest.mark.parametrize("violated", [1, 2, 3])
def test_wrong_equations_escape_as_often_as_is_said(violated: int) -> None:
    """Over GF(3), where it happens often: so many nodes contradict what node 0 says."""
    p, runs = 3, 2000
    said = np.array([1, 1, 0, 0], dtype=np.uint16)
    values = [Payload(np.array([value], dtype=np.uint8)) for value in [0, *[1] * violated]]
    equations = [Equation(i, 2, 1, said, value) for i, value in enumerate(values)]
    rng = np.random.default_rng(0)
    escaped = sum(not verify(equations, 4, p, lambda *_: True, rng).contradiction for _ in range(runs))
    once = ((p - 1) ** violated + (-1) ** violated * (p - 1)) / (p * (p - 1) ** violated)
    expected = once**2
    assert abs(escaped / runs - expected) <= 4 * np.sqrt(expected * (1 - expected) / runs)
