"""Who holds what: the samples of each class at each node, as the partition of a run deals them."""

import numpy as np
from numpy.typing import NDArray

from dncfl.common.config import Config
from dncfl.common.tasks.data import load_dataset


def class_counts(config: Config) -> NDArray[np.int64]:
    """How many training samples of each class every node holds (M × K). Raises as `load_dataset` and `Partition.split`."""
    labels = load_dataset(config.dataset, config.data_root, train=True).labels.numpy()
    shares = config.partition_scheme.split(labels, config.clients, config.seed)
    return np.stack([np.bincount(labels[share], minlength=labels.max() + 1) for share in shares])


def as_text(counts: NDArray[np.int64]) -> str:
    """A line for each node: its number, all its samples, and those of each class."""
    header = ["node", "samples", *(f"of {label}" for label in range(counts.shape[1]))]
    rows = [[str(number) for number in (node, row.sum(), *row)] for node, row in enumerate(counts)]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows))
