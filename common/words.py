"""Nodes, and rules of settings, in words for people."""

from collections.abc import Iterable, Mapping
from typing import Any

_RULES = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "greater than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "literal_error": "one of {expected}",
    "missing": "given",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "string_type": "a text",
}
"""What a value must be, by the types of pydantic's errors."""


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


def rule_in_words(error: Mapping[str, Any]) -> str:
    """The rule that one of the details of a pydantic ValidationError is about: `must be at least 2`."""
    limits = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(limits["error"])
    if error["type"] in _RULES:
        return "must be " + _RULES[error["type"]].format(**limits)
    return str(error["msg"])
