"""What the PS has collected in a round: how slots went, the equations that they brought, and what the nodes reported."""

from collections import Counter, defaultdict
from collections.abc import Collection

from dncfl.common.channel import Outcome
from dncfl.common.network_code import NetworkCode
from dncfl.common.trace import NOT_LISTENED, AttemptTrace, letters
from dncfl.common.wire import Report
from dncfl.server.decoder import Decoder, Equation
from dncfl.server.events import SlotOver


class Collected:
    """All of one round, attempt by attempt.

    Equations go into the decoder as they arrive, so that what is recoverable is known at any moment.
    """

    def __init__(self, round: int, code: NetworkCode, *, asks_for_slots: bool) -> None:
        """Nothing yet, in the first attempt; relay slots are open from its beginning unless they are asked for one by one."""
        self.round = round
        self.attempt = 1
        self.decoder = Decoder(code.num_clients, code.p)
        self.direct: set[int] = set()
        """whose messages came directly"""
        self.held: dict[int, set[int]] = defaultdict(set)
        """which messages each node holds, as it reported"""
        self.trained: dict[int, Report] = {}
        """the newest report of each node, also of one that was gone in the last attempt"""
        self.num_rejected = 0
        self._code = code
        self._asks_for_slots = asks_for_slots
        self._past: list[AttemptTrace] = []
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self.last_open_slot = 1 if self._asks_for_slots else 1 + self._code.relay_slots
        self.reports: dict[int, Report] = {}
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._num_over: Counter[int] = Counter()
        self._early: dict[int, list[SlotOver]] = defaultdict(list)

    @property
    def num_over(self) -> int:
        """How many slots of senders are over in this attempt."""
        return len(self._outcomes)

    @property
    def arrived(self) -> set[int]:
        """The messages that some station has heard of."""
        return set().union(*(self.held[m] for m in self.reports), self.decoder.involved)

    @property
    def traces(self) -> tuple[AttemptTrace, ...]:
        """All attempts so far; what is not over counts as lost."""
        return (*self._past, self._trace())

    def late(self, senders: Collection[int]) -> set[int]:
        """Those that still have an open slot before them."""
        return {m for m in senders if self._num_over[m] < self.last_open_slot}

    def open_relay_slot(self) -> int | None:
        """The next relay slot, open from now on; None when all are."""
        if self.last_open_slot > self._code.relay_slots:
            return None
        self.last_open_slot += 1
        return self.last_open_slot

    def repeat(self) -> None:
        """Begin another attempt; equations and what nodes hold stay."""
        self._past.append(self._trace())
        self.attempt += 1
        self._begin_attempt()

    def take_slot(self, over: SlotOver) -> bool:
        """Whether this is news, which is then taken; what a sender relays, as soon as it has reported what it holds."""
        waiting = self._early[over.sender]
        is_known = (over.sender, over.slot) in self._outcomes or any(other.slot == over.slot for other in waiting)
        if is_known or (over.round, over.attempt) != (self.round, self.attempt) or over.slot > self.last_open_slot:
            return False
        if over.slot > 1 and over.sender not in self.reports:
            waiting.append(over)
        else:
            self._take(over)
        return True

    def take_report(self, report: Report) -> bool:
        """Whether this is news, which is then taken, and with it what its node has relayed before."""
        if report.node in self.reports or (report.round, report.attempt) != (self.round, self.attempt):
            return False
        self.reports[report.node] = self.trained[report.node] = report
        self.held[report.node] |= {m for m, letter in enumerate(report.heard) if letter == Outcome.DELIVERED.value}
        self.held[report.node].add(report.node)
        for codeword in self._early.pop(report.node, []):
            self._take(codeword)
        return True

    def _take(self, over: SlotOver) -> None:
        self._num_over[over.sender] += 1
        if over.slot > 1 and set(over.messages) != self.held[over.sender]:
            self.num_rejected += 1  # a codeword of what the sender does not hold
            self._outcomes[over.sender, over.slot] = Outcome.LOST
            return
        self._outcomes[over.sender, over.slot] = over.outcome
        if over.payload is not None:
            coefficients = self._code.coefficients(over.sender, over.slot, over.messages)
            if coefficients.any():
                self.decoder.add(Equation(over.sender, over.slot, over.attempt, coefficients, over.payload))
            if over.slot == 1:
                self.direct.add(over.sender)

    def lost_links(self, live: Collection[int]) -> set[tuple[int, int]]:
        """(m, k) for those of these nodes where something of m's got lost on the way to k; the PS is k = num_clients."""
        server = self._code.num_clients
        return {
            (m, k)
            for trace in self.traces
            for m in live
            for k in (*live, server)
            if Outcome.LOST.value in trace.slot1[m][k] + (trace.relay[m] if k == server else "")
        }

    def _trace(self) -> AttemptTrace:
        nodes, slots, lost = range(self._code.num_clients), range(2, self.last_open_slot + 1), Outcome.LOST
        return AttemptTrace(
            round=self.round,
            attempt=self.attempt,
            slot1=tuple("".join(self._letter(m, k) for k in nodes) + self._outcomes.get((m, 1), lost).value for m in nodes),
            relay=tuple(letters(self._outcomes.get((m, slot), lost) for slot in slots) for m in nodes),
        )

    def _letter(self, sender: int, receiver: int) -> str:
        if sender == receiver or not self._code.relay_slots:
            return NOT_LISTENED
        return self.reports[receiver].heard[sender] if receiver in self.reports else Outcome.LOST.value
