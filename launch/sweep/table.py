"""The table of a sweep: one row per run and round.

First the labels, then what a row is about (seed, run, engine, round), then the figures in FIGURES and, for each class K of
the data, recall_K, the share of its test samples that are recognised.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

import polars as pl  # tables that read and write Parquet and CSV by themselves, in one package

from dncfl.launch.sweep.jobs import Finished
from dncfl.launch.sweep.runs import Label
from dncfl.server.records import RoundRecord

PLACE = ("seed", "run", "engine", "round")
FIGURES = {
    "accuracy": "test accuracy after the round, 0..1",
    "loss": "mean test cross-entropy after the round",
    "worst_recall": "recall of the class that is recognised least",
    "train_loss": "mean over the nodes of the loss in their last local epoch",
    "num_recovered": "|W|, the nodes whose messages the PS used",
    "num_direct": "nodes whose slot-1 message the PS heard itself",
    "attempts": "attempts of the round, each with one slot 1",
    "relay_slots_used": "relay slots of the round, over all attempts",
    "relay_slots_saved": "relay slots that early stop left out",
    "rank": "independent equations at the PS",
    "clip_fraction": "share of all updates' values outside the quantiser's bounds",
    "delivered": "transmissions that arrived, over all links and slots",
    "erased": "transmissions that the channel erased",
    "lost": "transmissions that never came",
    "slots": "air time since the start: attempts and relay slots of this and all earlier rounds",
    "bytes": "symbols sent since the start, in bytes: every node sends its message in slot 1 and what it relays in each relay "
    "slot, once, however many listen; headers, escapes and the downlink are not counted; a node that is gone counts on",
    "seconds": "what the round took",
}


def make_table(runs: Sequence[Finished]) -> pl.DataFrame:
    """The table of some runs. Raises ValueError for a label that is called like another column."""
    names = list(dict.fromkeys(name for finished in runs for name in finished.run.labels))
    if taken := [name for name in names if name in PLACE or is_figure(name)]:
        raise ValueError(f"labels {sorted(taken)}: are columns of every table")
    lengths = [len(finished.records) for finished in runs]
    columns = {name: _label_column(name, [finished.run.labels.get(name) for finished in runs], lengths) for name in names}
    rows = [row for finished in runs for row in _rows(finished)]
    return pl.DataFrame([*columns.values(), *pl.DataFrame(rows, infer_schema_length=None).get_columns()])


def label_names(table: pl.DataFrame) -> list[str]:
    """The columns of a table that are labels."""
    return [name for name in table.columns if name not in PLACE and not is_figure(name)]


def is_figure(name: str) -> bool:
    """Whether a column tells what runs came to."""
    return name in FIGURES or re.fullmatch(r"recall_\d+", name) is not None


def _label_column(name: str, labels: Sequence[Label | None], lengths: Sequence[int]) -> pl.Series:
    """The label of each run, as often as the run has rounds; as texts where they are of several kinds."""
    kinds = {type(label) for label in labels if label is not None}
    if len(kinds) > 1:
        as_one = float if kinds == {int, float} else str
        labels = [None if label is None else as_one(label) for label in labels]
    return pl.Series(name, [label for label, length in zip(labels, lengths, strict=True) for _ in range(length)])


def _rows(finished: Finished) -> Iterator[dict[str, Label]]:
    config, records = finished.run.config, finished.records
    slots = accumulate(record.attempts + record.relay_slots for record in records)
    sizes = accumulate(record.bytes_sent for record in records)
    for record, slots_so_far, bytes_so_far in zip(records, slots, sizes, strict=True):
        place: dict[str, Label] = {
            "seed": config.seed,
            "run": finished.run.name,
            "engine": finished.engine,
            "round": record.round,
        }
        so_far: dict[str, Label] = {"slots": slots_so_far, "bytes": bytes_so_far}
        recalls: dict[str, Label] = {f"recall_{label}": recall for label, recall in enumerate(record.recall)}
        yield {**place, **_figures(record), **so_far, "seconds": record.seconds["total"], **recalls}


def _figures(record: RoundRecord) -> dict[str, Label]:
    return {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "worst_recall": min(record.recall),
        "train_loss": record.train_loss,
        "num_recovered": len(record.recovered),
        "num_direct": len(record.direct),
        "attempts": record.attempts,
        "relay_slots_used": record.relay_slots,
        "relay_slots_saved": record.relay_slots_saved,
        "rank": record.rank,
        "clip_fraction": record.clip_fraction,
        **{name: record.transmissions[name] for name in ("delivered", "erased", "lost")},
    }
