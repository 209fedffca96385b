"""Nodes in words."""

import pytest

from dncfl.common.words import nodes_in_words


@pytest.mark.parametrize(
    ("numbers", "words"),
    [([3], "node 3"), ((5, 0), "nodes 0, 5"), ({0, 1, 2, 7, 8, 9, 4}, "nodes 0..2, 4, 7..9"), ([1, 2], "nodes 1, 2")],
)
def test_neighbours_are_told_as_a_range(numbers: list[int], words: str) -> None:
    assert nodes_in_words(numbers) == words
