"""Which nodes sent wrong symbols, and the messages in spite of them.

A message proves itself, by its checksum; a codeword does not. But what the equations of a round have in surplus, beyond
those that determine the messages, says again what is known already: any difference means that somebody sent something
wrong. An explanation is a set of liars: nodes such that all others told the truth. That is, the equations of all others
agree, and the messages of all others prove themselves where they can be solved for. A message that came by itself in slot 1
and proves itself is believed, whatever else its sender did.

An explanation is settled if messages that prove themselves convict each of its nodes, by an equation that does not fit them;
or if there is no other.

What it takes, with t <= max_liars liars who lie in codewords only:

- A wrong equation is seen if honest ones contradict it, or if a message is solved with it; otherwise it does no harm.
- Messages are recovered at least as far as the equations of the honest nodes determine them.
- The liars are named exactly if every message is determined *whichever* t nodes' codewords are left out. For then all
  messages are recovered by leaving out the liars', and convict them; and whoever else is left out, the lies that remain
  contradict the rest, or spoil a message. With less, no honest node is named, but perhaps not all liars are.
- A checksum is not a signature. Liars who make up a message of another node that passes are seen only by contradiction, and
  are named exactly if *any* 2t nodes' codewords can be left out. With less surplus, they win once fewer honest nodes
  contradict them; where as many do, neither's word is taken.
- A node that lies about its own message, in the same way to all, cannot be seen if the message proves itself. If the message
  does not, the node and those who relayed it are equally suspect. A node that tells others something else than the PS makes
  honest relays look like liars; one that tells the PS two things is named, and the first one counts.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from dncfl.common.field import PrimeField, product_of_floats
from dncfl.common.payload import Payload, Symbols
from dncfl.common.threads import each
from dncfl.server.decoder import Equation
from dncfl.server.elimination import Echelon

Nodes = frozenset[int]
Places = NDArray[np.int64]
Flags = NDArray[np.bool_]
Proof = Callable[[int, Payload], bool]
"""Whether a payload is a message of this node; called on several threads for long messages."""

CHECKS = 2
"""Random parity checks that are made in one pass."""

WITNESSES = 8
"""Columns that are taken from one failed parity check: a few are enough to tell most explanations from each other."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What can be said about the equations of a round.

    messages: those that prove themselves, by the number of their node; none that two explanations give differently
    suspects: who sent something wrong, in every explanation of at most max_liars nodes
    dropped: the equations that were left out: damaged messages, and the codewords of the suspects
    settled: whether the suspects explain all that was wrong; if not, more equations may
    """

    messages: dict[int, Payload] = field(repr=False)
    suspects: tuple[int, ...]
    dropped: tuple[Equation, ...]
    settled: bool

    @property
    def contradiction(self) -> bool:
        """Whether anything was wrong at all."""
        return bool(self.suspects) or not self.settled


def verify(
    equations: Sequence[Equation],
    num_clients: int,
    p: int,
    proves_itself: Proof,
    rng: np.random.Generator,
    max_liars: int = 3,
) -> Verdict:
    """Recover the messages that the equations of a round determine; notice, name and leave out the nodes that lie.

    `rng` must be one whose draws no node can foresee. E equations of n symbols, u messages that did not come by themselves:

    - Nothing wrong: an elimination, O(E·u·M); one pass over all payloads, 2·E·n products, if there is any surplus;
      solving for u messages; and a checksum a message. A pass overlooks wrong equations that violate m dependencies with
      probability at most q², q = ((p-1)^m + (-1)^m·(p-1)) / (p·(p-1)^m): 0 for m = 1, else about 1/p and at most
      1/(p-1); equally so if they differ from the truth in one symbol, and less if in several that are not proportional.
    - Otherwise every conflict names c nodes of whom one lied, so that there are O(c^t) sets of t nodes to try; c is at most
      u + 1, and two or three where some nodes sent about u codewords. Each set costs O(E·u·(u+w)) at the w columns seen to
      be wrong, and a pass if it agrees there. Nodes that a conflict names alone, and senders of damaged messages, do not
      count for t. It goes on to t = max_liars only if no smaller set explains everything and is convicted.

    The equations must be such as `Decoder.add` takes, for the same num_clients and p.
    """
    own = [equation for equation in equations if equation.slot == 1]
    proofs = each(lambda equation: proves_itself(equation.sender, equation.payload), own, len(own[0].payload) if own else 0)
    known: dict[int, Equation] = {}
    damaged: list[Equation] = []
    for equation, proof in zip(own, proofs, strict=True):
        if not proof:
            damaged.append(equation)
        else:
            known.setdefault(equation.sender, equation)
    judged = {*damaged, *known.values()}
    number = Counter(equation.sender for equation in equations)
    claims = [equation for equation in equations if equation not in judged]
    claims.sort(key=lambda claim: (-number[claim.sender], claim.sender))  # few senders in the basis, so few in a conflict
    direct = {z: equation.payload for z, equation in known.items()}
    evidence = _Evidence(direct, claims, num_clients, p, proves_itself, rng)
    blemished = frozenset(equation.sender for equation in damaged)
    liars, messages, settled = _explain(evidence, blemished, max_liars)
    return Verdict(
        messages=dict(sorted((direct | messages).items())),
        suspects=tuple(sorted(liars | blemished)),
        dropped=(*damaged, *(claim for claim in claims if claim.sender in liars)),
        settled=settled,
    )


def _explain(evidence: "_Evidence", blemished: Nodes, max_liars: int) -> tuple[Nodes, dict[int, Payload], bool]:
    """The liars, the messages that did not come by themselves, and whether the liars explain everything.

    Explanations are searched smallest first in the tree of hitting sets: one of the nodes of every conflict lied, so a set
    that leaves a conflict is tried again with each of its nodes. Every smallest explanation is met this way. The blemished
    are suspects anyway, and those whom a conflict names alone are certain: neither count.
    """
    certain: Nodes = frozenset()
    explanations: dict[Nodes, dict[int, Payload]] = {}
    convicted: list[Nodes] = []
    tried: set[Nodes] = set()
    queue: list[tuple[int, int, list[int]]] = [(0, 0, [])]
    while queue:
        price, _, nodes = heappop(queue)
        liars = frozenset(nodes)
        if convicted and price > len(convicted[0] - certain - blemished):
            break
        if liars in tried or any(liars > smaller for smaller in explanations):
            continue
        tried.add(liars)
        finding = evidence.examine(liars)
        if not finding.conflict:
            explanations[liars] = finding.messages
            if evidence.convicts(liars - certain, finding.messages):
                convicted.append(liars)
        elif liars == certain and len(finding.conflict) == 1:
            certain |= finding.conflict
        for node in finding.conflict:
            larger = liars | {node}
            price = len(larger - certain - blemished)
            if price <= max_liars:
                heappush(queue, (price, len(larger), sorted(larger)))
    if not explanations:
        return certain, evidence.undisputed(), False
    common = frozenset.intersection(*explanations)
    best = (
        convicted
        or [liars for liars, messages in explanations.items() if evidence.convicts(liars - common, messages)]
        or list(explanations)
    )
    if len(best) > 1:
        return frozenset.intersection(*best), evidence.undisputed(), False
    return best[0], evidence.undisputed() | explanations[best[0]], True


@dataclass(frozen=True, eq=False)
class _Finding:
    """What follows if all but some nodes told the truth.

    messages: those that are solved for and prove themselves; none if the equations disagree
    conflict: nodes who cannot all have told the truth; empty if nothing contradicts it
    """

    messages: dict[int, Payload]
    conflict: Nodes


class _Evidence:
    """What nodes claim (E equations) beyond the messages that are known from slot 1, reduced to the u others."""

    def __init__(
        self,
        known: Mapping[int, Payload],
        claims: Sequence[Equation],
        num_clients: int,
        p: int,
        proves_itself: Proof,
        rng: np.random.Generator,
    ) -> None:
        coefficients = np.array([claim.coefficients for claim in claims], dtype=np.uint16).reshape(-1, num_clients)
        self._field = PrimeField(p)
        self._proves_itself = proves_itself
        self._rng = rng
        self._unknown = np.array([z for z in range(num_clients) if z not in known], dtype=np.int64)
        self._known = known
        self._all_coefficients = coefficients
        self._coefficients = coefficients[:, self._unknown]
        self._payloads = [claim.payload for claim in claims]
        self._senders = np.array([claim.sender for claim in claims], dtype=np.int64)
        self._witnesses = np.empty((len(claims), 0), dtype=np.uint16)
        self._proven: dict[int, list[Payload]] = {}
        self._is_sender = self._senders[:, None] == np.arange(num_clients)

    def undisputed(self) -> dict[int, Payload]:
        """The messages that proved themselves under some assumption, and came out the same under all others."""
        return {z: values[0] for z, values in self._proven.items() if len(values) == 1}

    def examine(self, liars: Nodes) -> _Finding:
        """What follows if all but the liars told the truth."""
        rest = np.flatnonzero(~self._is_sender[:, sorted(liars)].any(axis=1))
        echelon = Echelon(self._unknown.size, self._field.p)
        new = echelon.add(self._coefficients[rest])
        coordinates = echelon.coordinates(self._coefficients[rest])
        factors = {int(self._unknown[i]): row for i, row in echelon.determined().items()}
        conflict = self._disagreement(rest, new, coordinates)
        if not conflict and self._find_witnesses(rest, new, coordinates):
            conflict = self._disagreement(rest, new, coordinates)
        if conflict:
            return _Finding({}, conflict)
        messages = self._solve(rest[new], factors)
        failing = [z for z in factors if z not in messages and z not in liars]
        blamed = [frozenset({z, *self._senders[rest[new][factors[z] != 0]].tolist()}) for z in failing]
        return _Finding(messages, min(blamed, key=len, default=frozenset()))

    def convicts(self, nodes: Nodes, messages: Mapping[int, Payload]) -> bool:
        """Whether messages that prove themselves contradict some claim of each of these nodes."""
        missing = [i for i, z in enumerate(self._unknown.tolist()) if z not in messages]
        checkable = np.count_nonzero(self._coefficients[:, missing], axis=1) == 0
        said_by = self._is_sender[:, sorted(nodes)] & checkable[:, None]
        if not said_by.any(axis=0).all():
            return False
        if not nodes:
            return True
        places = np.flatnonzero(said_by.any(axis=1))
        weights = self._rng.integers(1, self._field.p, (CHECKS, len(nodes), places.size), dtype=np.uint16) * said_by[places].T
        checks = self._combine(places, weights.reshape(-1, places.size), {**self._known, **messages})
        violated = np.array([_nonzero(check).size > 0 for check in checks]).reshape(CHECKS, len(nodes))
        return bool(violated.any(axis=0).all())

    def _disagreement(self, rest: Places, new: Flags, coordinates: Symbols) -> Nodes:
        """The fewest senders of equations that depend on each other, but disagree at a witness column; empty if all agree."""
        values = self._witnesses[rest]
        wrong = np.flatnonzero((values != self._field.matmul(coordinates, values[new])).any(axis=1))
        if not wrong.size:
            return frozenset()
        is_sender = self._is_sender[rest].astype(np.float32)  # which numpy multiplies fast
        involved = product_of_floats((coordinates[wrong] != 0).astype(np.float32), is_sender[new]) + is_sender[wrong]
        fewest = involved[np.argmin(np.count_nonzero(involved, axis=1))]
        return frozenset(np.flatnonzero(fewest).tolist())

    def _find_witnesses(self, rest: Places, new: Flags, coordinates: Symbols) -> bool:
        """Whether a random combination of all dependencies is violated somewhere; some such columns become witnesses."""
        surplus = ~new
        if not surplus.any():
            return False
        weights = np.empty((CHECKS, rest.size), dtype=np.uint16)
        weights[:, surplus] = self._rng.integers(1, self._field.p, (CHECKS, np.count_nonzero(surplus)), dtype=np.uint16)
        weights[:, new] = self._negative(self._field.matmul(weights[:, surplus], coordinates[surplus]))
        violated = np.concatenate([_nonzero(check) for check in self._combine(rest, weights, self._known)])
        if not violated.size:
            return False
        columns = self._rng.choice(violated, min(WITNESSES, violated.size), replace=False)
        said = np.array([payload.at(columns) for payload in self._payloads])
        if self._known:
            known = np.array([payload.at(columns) for payload in self._known.values()])
            due = self._field.matmul(self._all_coefficients[:, list(self._known)], known)
            said = (said.astype(np.int64) - due) % self._field.p
        self._witnesses = np.hstack([self._witnesses, said.astype(np.uint16)])
        return True

    def _solve(self, basis: Places, factors: Mapping[int, Symbols]) -> dict[int, Payload]:
        """The messages that factors (rank,) of the equations of a basis (rank,) give, as far as they prove themselves."""
        if not factors:
            return {}
        solved = dict(zip(factors, self._combine(basis, np.array(list(factors.values())), self._known), strict=True))
        proofs = each(lambda z: self._proves_itself(z, solved[z]), solved, len(self._payloads[0]))
        return {z: self._as_before(z, solved[z]) for z, proof in zip(solved, proofs, strict=True) if proof}

    def _as_before(self, z: int, message: Payload) -> Payload:
        """The same payload for the same message, so that however many explanations hold each only once."""
        values = self._proven.setdefault(z, [])
        for value in values:
            if np.array_equal(value.plane, message.plane) and np.array_equal(value.escapes, message.escapes):
                return value
        values.append(message)
        return message

    def _combine(self, places: Places, factors: Symbols, messages: Mapping[int, Payload]) -> list[Payload]:
        """factors (k × n) of some equations (n,), less what these messages have part in them."""
        due = self._negative(
            self._field.matmul(factors, self._all_coefficients[np.ix_(places, np.array(list(messages), dtype=np.int64))])
        )
        extended = np.hstack([factors, due])
        payloads = [*(self._payloads[i] for i in places), *messages.values()]
        used = np.flatnonzero(extended.any(axis=0))
        return self._field.combine(extended[:, used], [payloads[i] for i in used])

    def _negative(self, values: Symbols) -> NDArray[np.uint16]:
        return ((self._field.p - values.astype(np.int64)) % self._field.p).astype(np.uint16)


def _nonzero(payload: Payload) -> NDArray[np.integer]:
    """The columns whose symbol is not 0."""
    return np.concatenate([np.flatnonzero(payload.plane), payload.escapes])
