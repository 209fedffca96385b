"""Nodes in words for people."""

from collections.abc import Iterable


def nodes_in_words(numbers: Iterable[int]) -> str:
    """`node 3`, or `nodes 0, 2, 4..9`."""
    ordered = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ("node " if len(ordered) == 1 else "nodes ") + ", ".join(words)
