"""The runs of a sweep: what they are called, and what tells one from all others."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from dncfl.common.config import Config

Label = str | int | float | bool

DIGEST_LENGTH = 12
LONGEST_NAME = 120
"""Characters of a name; with the digest it is a file name on any system."""


@dataclass(frozen=True)
class Run:
    """One run of a sweep."""

    labels: Mapping[str, Label]
    """what it differs from others by, for tables and legends; the seed is not among it"""
    config: Config

    @cached_property
    def name(self) -> str:
        """Its labels and its seed, in characters that any file system takes."""
        text = ",".join(f"{key}={value}" for key, value in {**self.labels, "seed": self.config.seed}.items())
        return re.sub(r"[^\w.=,+-]+", "_", text, flags=re.ASCII)[:LONGEST_NAME]

    @cached_property
    def digest(self) -> str:
        """A short hash of all that decides what the run computes; where its data lie is no part of that."""
        values = json.loads(self.config.to_json()) | {"faults": [str(fault) for fault in self.config.faults]}
        values.pop("data_root", None)
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]
