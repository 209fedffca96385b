"""A grid of runs in a TOML file: fixed settings, axes of settings whose values are all combined, cases, and seeds."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from dncfl.common.config import Config, load_config, of_wrong_type, read_toml
from dncfl.common.errors import ConfigError
from dncfl.launch.sweep.runs import Label, Run

CASE = "case"
"""The label that tells cases apart; a curve is called by its value alone."""

PARTS = ("seeds", "axes", "cases")
"""What a grid has beside settings."""

MOST_RUNS, MOST_SEEDS = 100_000, 2**63 - 1
MOST_MESSAGES, MOST_PLACES = 20, 10
"""Different mistakes that are told at once, and combinations that are named for each."""

NOT_HERE = {
    "seed": "give seeds, a number of seeds or a list of them",
    "out": "a sweep gives each run its place in its own folder",
    "json": "is an option of the command",
}


@dataclass(frozen=True)
class Choice:
    """One point on an axis."""

    label: Label
    settings: Mapping[str, Any]


Axes = Mapping[str, Sequence[Choice]]


def read_grid(path: Path) -> list[Run]:
    """All runs of a grid, one seed after the other, so that a part of them is a whole grid of fewer seeds.

    Raises ConfigError, whose lines name every mistake and the combinations that it is in.
    """
    try:
        return list(_runs(read_toml(path)))
    except ConfigError as error:
        lines = [line if line.startswith((" ", f"{path}: ")) else f"{path}: {line}" for line in str(error).splitlines()]
        raise ConfigError("\n".join(lines)) from None


def _runs(fixed: dict[str, Any]) -> Iterator[Run]:
    seeds, axes, cases = (fixed.pop(name, None) for name in PARTS)
    for name in fixed.keys() - Config.model_fields.keys():
        if meant := get_close_matches(name, PARTS, n=1):
            raise ConfigError(f"{name}: unknown in a grid; did you mean {meant[0]}?")
    numbers = _seeds(seeds)
    choices = {**_cases(cases), **_axes(axes)}
    _ensure_said_once(fixed, choices)
    if (number := len(numbers) * prod(map(len, choices.values()))) > MOST_RUNS:
        raise ConfigError(f"is a grid of {number} runs: must be at most {MOST_RUNS}")
    combinations = _checked(fixed, choices, numbers[0])
    for seed in numbers:
        for labels, config in combinations:
            yield Run(labels, config.model_copy(update={"seed": seed}))


def _seeds(given: Any) -> Sequence[int]:
    """The seeds 0, 1, … of their number, or those of a list."""
    if given is None:
        return [0]
    if _is_whole(given) and given > 0:
        return range(min(given, MOST_SEEDS))
    if not (isinstance(given, list) and given and all(_is_whole(seed) and 0 <= seed <= MOST_SEEDS for seed in given)):
        raise ConfigError(f"seeds = {given}: must be a number of seeds, or a list of whole numbers from 0 on")
    if len(set(given)) < len(given):
        raise ConfigError(f"seeds = {given}: holds a seed twice")
    return given


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _axes(given: Any) -> Axes:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"axes = {given}: must be a table, as in\n    [axes]\n    snr = [1, 3]")
    axes = {}
    for key, values in given.items():
        name = key.replace("-", "_")
        if not isinstance(values, list) or not values:
            raise ConfigError(f"axes: {name} = {values}: must be a list of at least one value")
        axes[name] = [Choice(_label(value, number), {name: value}) for number, value in enumerate(values, start=1)]
    return axes


def _cases(given: Any) -> Axes:
    if given is None:
        return {}
    if not isinstance(given, list) or not given or not all(isinstance(case, dict) for case in given):
        raise ConfigError(f"cases = {given}: must be tables, as in\n    [[cases]]\n    method = 'qfl'")
    cases = [_case(case, number) for number, case in enumerate(given, start=1)]
    if twice := {case.label for case in cases if [other.label for other in cases].count(case.label) > 1}:
        raise ConfigError(f"cases: {', '.join(sorted(map(str, twice)))}: stands there twice")
    return {CASE: cases}


def _case(given: Mapping[str, Any], number: int) -> Choice:
    settings = {key.replace("-", "_"): value for key, value in given.items() if key != "name"}
    label = given.get("name", ", ".join(f"{key}={_label(value, number)}" for key, value in settings.items()))
    if not isinstance(label, str) or not label:
        raise ConfigError(f"cases: name = {label}: must be a text, and a case without one needs a setting")
    return Choice(label, settings)


def _label(value: Any, number: int) -> Label:
    """A value as it stands, or a word for one that is a table."""
    return value if isinstance(value, Label) else f"table-{number}"


def _ensure_said_once(fixed: Mapping[str, Any], choices: Axes) -> None:
    """Raise ConfigError where a setting has two places, or has none in a grid."""
    mistakes, seen = [], dict.fromkeys(fixed, "a fixed setting")
    for axis, points in choices.items():
        title = "a setting of cases" if axis == CASE else "an axis"
        for name in dict.fromkeys(name for point in points for name in point.settings):
            if name in seen:
                mistakes.append(f"{name}: is {title}, and {seen[name]} too; must be one of them")
            seen[name] = title
    mistakes += [f"{name}: {NOT_HERE[name]}" for name in seen if name in NOT_HERE]
    if mistakes:
        raise ConfigError("\n".join(mistakes))


def _checked(fixed: Mapping[str, Any], choices: Axes, seed: int) -> list[tuple[dict[str, Label], Config]]:
    """The labels and the configuration of every combination. Raises ConfigError for all that are wrong."""
    combinations, mistakes = [], defaultdict(list)
    seen: dict[str, str] = {}
    for points in product(*choices.values()):
        labels = {axis: point.label for axis, point in zip(choices, points, strict=True)}
        place = ", ".join(f"{name}={label}" for name, label in labels.items())
        settings: dict[str, Any] = dict(fixed)
        for point in points:
            settings |= point.settings
        try:
            if wrong := of_wrong_type(settings):
                raise ConfigError("\n".join(wrong))
            config = load_config(None, settings | {"seed": seed})
        except ConfigError as error:
            for line in str(error).splitlines():
                mistakes[line].append(place)
            continue
        if (first := seen.setdefault(Run(labels, config).digest, place)) is not place:
            mistakes[f"the same run as {first}"].append(place)
        combinations.append((labels, config))
    if mistakes:
        raise ConfigError("\n".join(_told(mistakes, prod(map(len, choices.values())))))
    return combinations


def _told(mistakes: Mapping[str, Sequence[str]], num_combinations: int) -> Iterator[str]:
    """A line per mistake, and one for each combination that it is in, unless it is in all of them."""
    for message, places in list(mistakes.items())[:MOST_MESSAGES]:
        yield message
        if len(places) < num_combinations:
            yield from (f"    in {place}" for place in places[:MOST_PLACES])
            if (more := len(places) - MOST_PLACES) > 0:
                yield f"    and in {more} more of {num_combinations} combinations"
    if (more := len(mistakes) - MOST_MESSAGES) > 0:
        yield f"and {more} more mistakes"
