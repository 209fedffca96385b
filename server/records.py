"""What is recorded of a round and of a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from dncfl.common.channel import Outcome
from dncfl.common.trace import AttemptTrace

if TYPE_CHECKING:  # they import compiled functions
    from dncfl.common.message import MessageFormat
    from dncfl.common.network_code import NetworkCode


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One line of metrics.jsonl."""

    round: int
    accuracy: float
    """test accuracy after the round, 0..1"""
    loss: float
    """mean test cross-entropy after the round"""
    recall: tuple[float, ...]
    """share of each class's test samples that are recognised after the round"""
    train_loss: float
    """mean over the nodes of the loss in their last local epoch"""
    recovered: tuple[int, ...]
    """W: the nodes whose updates the PS used; with colrel those that were part of some sum that arrived"""
    direct: tuple[int, ...]
    """the nodes whose slot-1 message the PS heard itself; colrel makes no use of these"""
    attempts: int
    relay_slots: int
    """relay slots used, over all attempts"""
    relay_slots_saved: int
    """relay slots that early stop left out, over all attempts; each is a codeword of every node"""
    bytes_sent: int
    """bytes of the symbols that nodes sent, each transmission once, however many listen, without headers and escapes; a node
    that is gone counts on"""
    bytes_saved: int
    """bytes of the symbols in the codewords that were left out, without headers and escapes"""
    rank: int
    """independent equations at the PS; with colrel the sums that arrived"""
    transmissions: dict[str, int]
    """over all links and slots: sent = delivered + erased + lost"""
    suspects: tuple[int, ...]
    """nodes that sent wrong symbols, as far as they could be told"""
    num_dropped: int
    """equations that were left out because of that"""
    lost_links: dict[str, int]
    """transmissions that were lost, by link, as in "2->0" or "2->ps"; those of a node that is gone are among them"""
    clip_fraction: float
    """share of all updates' values outside the quantiser's bounds"""
    bytes: dict[str, dict[str, int]]
    """bytes on the wire by direction (down: PS to nodes, up: to the PS, peers: node to node) and kind; {} without sockets"""
    seconds: dict[str, float]
    """the round by phase; see `dncfl.server.closing`; in one process the nodes' trainings are summed"""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> "RoundRecord":
        """The record in a line of metrics.jsonl. Raises ValueError for another one."""
        if differing := {field.name for field in fields(cls)} ^ values.keys():
            raise ValueError(f"a round of another version of dncfl, which differs in {', '.join(sorted(differing))}")
        lists = {name: tuple(values[name]) for name in ("recall", "recovered", "direct", "suspects")}
        return cls(**{**values, **lists})


class LocalFigures(Protocol):
    """What a round record takes from each node: a `Report` off the wire, or a `LocalUpdate` in one process."""

    @property
    def train_loss(self) -> float: ...
    @property
    def num_clipped(self) -> int: ...


def local_figures(nodes: Sequence[LocalFigures], num_parameters: int) -> dict[str, Any]:
    """What a round record says of all nodes' trainings."""
    return {
        "train_loss": sum(node.train_loss for node in nodes) / len(nodes),
        "clip_fraction": sum(node.num_clipped for node in nodes) / (len(nodes) * num_parameters),
    }


def attempt_figures(attempts: Sequence[AttemptTrace], code: "NetworkCode", message: "MessageFormat") -> dict[str, Any]:
    """What a round record says of its attempts, in which messages had this format."""
    used = sum(attempt.relay_slots for attempt in attempts)
    saved = len(attempts) * code.relay_slots - used
    slot1_bytes = code.num_clients * message.num_bytes
    return {
        "attempts": len(attempts),
        "relay_slots": used,
        "relay_slots_saved": saved,
        "bytes_sent": len(attempts) * slot1_bytes + used * code.relay_slot_bytes(message),
        "bytes_saved": saved * code.relay_slot_bytes(message),
        **link_figures(attempts),
    }


def link_figures(attempts: Sequence[AttemptTrace]) -> dict[str, Any]:
    """What became of the transmissions of some attempts."""
    outcomes: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for attempt in attempts:
        for sender, row in enumerate(attempt.slot1):
            receivers = [str(receiver) for receiver in range(len(row) - 1)] + ["ps"] * (1 + attempt.relay_slots)
            for receiver, letter in zip(receivers, row + attempt.relay[sender], strict=True):
                outcomes[letter] += 1
                lost[f"{sender}->{receiver}"] += letter == Outcome.LOST.value
    counts = {outcome.name.lower(): outcomes[outcome.value] for outcome in Outcome}
    return {"transmissions": {"sent": sum(counts.values()), **counts}, "lost_links": {link: n for link, n in lost.items() if n}}


def summarise(records: Sequence[RoundRecord], num_clients: int) -> dict[str, Any]:
    """The figures of a run that follow from its rounds."""
    if not records:
        return {"rounds_done": 0, "final_accuracy": None}
    return {
        "rounds_done": len(records),
        "final_accuracy": records[-1].accuracy,
        "final_loss": records[-1].loss,
        "best_accuracy": max(record.accuracy for record in records),
        "mean_recovered": sum(len(record.recovered) for record in records) / len(records),
        "mean_direct": sum(len(record.direct) for record in records) / len(records),
        "suspects": sorted({node for record in records for node in record.suspects}),
        "dropped_equations": sum(record.num_dropped for record in records),
        "rounds_all_recovered": sum(len(record.recovered) == num_clients for record in records),
        "attempts": sum(record.attempts for record in records),
        "relay_slots": sum(record.relay_slots for record in records),
        "relay_slots_saved": sum(record.relay_slots_saved for record in records),
        "bytes_sent": sum(record.bytes_sent for record in records),
        "bytes_saved": sum(record.bytes_saved for record in records),
        "transmissions": {name: sum(record.transmissions[name] for record in records) for name in records[0].transmissions},
        "lost_links": dict(sum((Counter(record.lost_links) for record in records), Counter())),
    }
