"""Who holds what."""

from collections import Counter

import pytest

from dncfl.common.config import load_config
from dncfl.launch.shares import as_text, class_counts
from dncfl.node.trainer import local_trainers
from tests.integration.processes import call, summary


@pytest.mark.parametrize("partition", ["iid", "classes:1", "classes:3", "dirichlet:0.3"])
def test_counts_are_those_of_the_nodes_own_samples(partition: str) -> None:
    config = load_config(None, {"partition": partition, "clients": 7, "seed": 5})
    counts = class_counts(config)
    assert counts.shape == (7, 10)
    for trainer, row in zip(local_trainers(config, range(7)), counts.tolist(), strict=True):
        assert Counter(trainer.samples.labels.tolist()) == Counter({label: count for label, count in enumerate(row) if count})


def test_the_command(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, options = tmp_path_factory.mktemp("empty"), ("shares", "--clients", 3, "--partition", "classes:2")
    counts = summary(*options, cwd=folder)["nodes"]
    assert [sum(row) for row in counts] == [sum(counts[0])] * 3
    assert [sum(count > 0 for count in row) for row in counts] == [2, 2, 2]
    exit_code, text, told = call(*options, cwd=folder)
    assert exit_code == 0
    nobody = [label for label in range(10) if not any(row[label] for row in counts)]
    assert nobody  # three nodes hold six classes at most
    assert told.splitlines() == [f"no node holds samples of class {label}" for label in nobody]
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:4] == ["node", "samples", "of", "0"]
    assert [line[2:] for line in lines[1:]] == [[str(count) for count in row] for row in counts]
    exit_code, text, error = call(*options, "--partition", "classes:99", cwd=folder)
    assert (exit_code, text) == (2, "")
    assert "must be a whole number from 1 to 10" in error


def test_columns_line_up() -> None:
    counts = class_counts(load_config(None, {"clients": 2}))
    assert len({len(line) for line in as_text(counts).splitlines()}) == 1
