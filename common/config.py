"""The configuration of a run: one flat table, in the same words in a TOML file and on the command line."""

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic
import tomli_w  # the standard library reads TOML but does not write it
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dncfl.common.channel import outage_probability
from dncfl.common.errors import ConfigError
from dncfl.common.faults import AnyFault
from dncfl.common.methods import AnonymousVariant, Method, MethodName, method
from dncfl.common.primes import MAX_PRIME, MIN_FIELD, require_prime, smallest_prime
from dncfl.common.relay_weights import MIN_PATH, cut_off
from dncfl.common.tasks.own import is_own
from dncfl.common.tasks.partition import NUM_CLASSES, Partition, parse_partition
from dncfl.common.words import rule_in_words

MAX_CLIENTS = 255
"""The largest M whose field, p >= M², has symbols of 16 bits."""


DATASETS = ("digits", "mnist")
"""Those that come with dncfl, of ten classes each."""

PAPER_CNN = "paper-cnn"
"""The letter's model, which comes with dncfl."""

MAX_BOUND = 1e30
"""The largest quantiser bound: far beyond any update, and far from overflow."""

FADING = ("snr", "rate", "sigma2")
FOLLOWS = ("channel", "field", "relay_slots", "bound", "batch_size", "min_nodes")
"""Settings that follow from others unless given."""


class LinkTable(BaseModel):
    """A value for each link."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[tuple[float, ...], ...] = Field(description="M rows of M: row m, column k is the link from node m to node k")
    server: tuple[float, ...] = Field(description="M values: the link from node m to the PS")


def _number_or_json(text: str) -> object:
    """What a text says; raises ValueError for several numbers, None for what says nothing."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        if "," in text and "{" not in text:
            raise ValueError(
                "must be one number; runs with several, one after the other, are what dncfl sweep is for"
            ) from None
        return None


def _link_value(value: object) -> object:
    """A number or a table of numbers, also from the text of a command line."""
    if isinstance(value, str):
        value = _number_or_json(value)
    if isinstance(value, LinkTable) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        if isinstance(value, float) and not np.isfinite(value):
            raise ValueError("must be a finite number")
        return value
    try:
        return LinkTable.model_validate(value)
    except pydantic.ValidationError:
        raise ValueError('must be a number, or a value per link: {"nodes": M rows of M, "server": M}') from None


LinkValue = Annotated[float | LinkTable, BeforeValidator(_link_value)]


def _bound(value: object) -> object:
    if value in ("adaptive", "per-tensor"):
        return value
    try:
        number = float(value)  # type: ignore[arg-type]  # anything that is no number is refused below
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= MAX_BOUND or isinstance(value, bool):
        raise ValueError(f"must be a positive number of at most {MAX_BOUND:g}, 'adaptive' or 'per-tensor'")
    return number


Bound = Annotated[float | Literal["adaptive", "per-tensor"], BeforeValidator(_bound)]
"""The quantiser's bound B, or that it is the largest magnitude of each update, or of each of its tensors."""


class Config(BaseModel):
    """Everything that decides what a run computes, and where it is written. Raises pydantic's errors; see `load_config`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    clients: int = Field(10, ge=2, le=MAX_CLIENTS, description="number of nodes M")
    rounds: int = Field(20, ge=1, le=1_000_000, description="number of rounds T")
    method: MethodName = Field("dnc", description="how the PS gets and averages the updates")
    anonymous_variant: AnonymousVariant = Field("models", description="what the anonymous method sums")

    snr: LinkValue = Field(3.0, description="signal-to-noise ratio of a link (linear)")
    rate: LinkValue = Field(0.6, description="transmission rate R (bits per real dimension)")
    sigma2: LinkValue = Field(1.0, description="fading variance σ² per real dimension")
    pe: LinkValue | None = Field(None, description="outage probability of a link; replaces snr, rate and sigma2")
    trace: str | None = Field(None, description="trace.jsonl of an earlier run whose link outcomes are repeated")
    channel: Literal["rayleigh", "bernoulli", "trace", "perfect"] = Field(
        default_factory=lambda data: "trace" if data["trace"] else "rayleigh" if data["pe"] is None else "bernoulli",
        description="model of the links; follows from pe and trace unless given",
    )

    levels: int = Field(255, ge=2, le=MAX_PRIME, description="levels L of the stochastic quantiser")
    field: int = Field(
        default_factory=lambda data: smallest_prime(max(data["clients"] ** 2, data["levels"], MIN_FIELD)),
        description="prime p of the field GF(p); the smallest possible unless given",
    )
    relay_slots: int = Field(
        default_factory=lambda data: 1 if data["method"] == "colrel" else data["clients"] - 1,
        ge=0,
        description="relay slots after slot 1; M-1 unless given, and always 1 with colrel",
    )
    early_stop: bool = Field(True, description="send a relay slot only when the slots before it were not enough")
    decode: Literal["all-heard", "partial"] = Field(
        "all-heard", description="repeat until all messages that take part are decoded, or take what can be decoded"
    )
    max_attempts: int = Field(10, ge=1, le=1000, description="attempts per round before the PS takes what it can decode")

    dataset: str = Field("digits", description="data to learn: digits, mnist, or your own as package.module:function")
    data_root: str | None = Field(None, description="folder with the data set; a cache in your home unless given")
    partition: str = Field("iid", description="who holds what: iid, classes:K or dirichlet:ALPHA")
    model: str = Field(PAPER_CNN, description="paper-cnn, or your own as package.module:function")
    bound: Bound = Field(
        default_factory=lambda data: "per-tensor" if is_own(data["model"]) else 0.1,
        description="quantiser's bound B, or the largest magnitude of each update (adaptive) or of each tensor of each update "
        "(per-tensor); 0.1 for paper-cnn, per-tensor for a model of your own unless given",
    )
    local_epochs: int = Field(5, ge=1, le=10_000, description="passes over the local data per round")
    batch_size: int = Field(
        default_factory=lambda data: 1024 if data["dataset"] == "mnist" else 32,
        ge=1,
        description="samples per SGD step; 32 for digits, 1024 for mnist unless given",
    )
    lr: float = Field(0.01, gt=0, description="learning rate η")
    momentum: float = Field(0.5, ge=0, lt=1, description="SGD momentum")

    seed: int = Field(0, ge=0, lt=2**63, description="seed of everything that is random")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the nodes train and the PS evaluates")
    min_nodes: int = Field(
        default_factory=lambda data: (data["clients"] + 1) // 2,
        ge=1,
        description="the run ends when fewer nodes are left; half of all unless given",
    )
    patience: float = Field(150.0, gt=0, description="seconds of silence after which a node counts as gone")
    join_patience: float = Field(600.0, gt=0, description="seconds that the PS waits at the start for nodes to join")
    training_patience: float = Field(
        600.0, gt=0, description="seconds without a step of progress after which a training node counts as gone"
    )
    slot_patience: float = Field(
        30.0, gt=0, description="seconds without a transmission, while no node trains, after which those missing are lost"
    )
    faults: tuple[AnyFault, ...] = Field((), description="faults on purpose, for tests: KIND:WHO:ROUND:POINT[:SECONDS]")
    out: str | None = Field(None, description="run folder to write; a new one under runs/ unless given")
    json_output: bool = Field(False, alias="json", description="print the summary as one JSON object on stdout")

    @field_validator("dataset")
    @classmethod
    def _dataset_is_named(cls, text: str) -> str:
        if text not in DATASETS and not is_own(text):
            raise ValueError(f"must be {', '.join(DATASETS)} or package.module:function")
        return text

    @field_validator("partition")
    @classmethod
    def _partition_is_known(cls, text: str, others: ValidationInfo) -> str:
        parse_partition(text, NUM_CLASSES if others.data.get("dataset") in DATASETS else None)
        return text

    @field_validator("model")
    @classmethod
    def _model_is_named(cls, text: str) -> str:
        if text != PAPER_CNN and not is_own(text):
            raise ValueError("must be paper-cnn or package.module:function")
        return text

    @field_validator("field")
    @classmethod
    def _field_is_prime(cls, p: int) -> int:
        try:
            require_prime(p)
        except ValueError as error:
            raise ValueError(str(error).partition(": ")[2]) from None
        return p

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        smallest = max(self.clients**2, self.levels, MIN_FIELD)
        if self.field < smallest:
            raise ConfigError(
                f"field = {self.field}: too small for {self.clients} clients and {self.levels} levels; "
                f"must be a prime of at least max(M², L, {MIN_FIELD}) = {smallest}"
            )
        for fault in self.faults:
            if max(fault.node or 0, fault.peer or 0) >= self.clients:
                raise ConfigError(f"faults: {fault}: there are nodes 0..{self.clients - 1}")
        if self.min_nodes > self.clients:
            raise ConfigError(f"min_nodes = {self.min_nodes}: must be at most the number of clients, {self.clients}")
        if self.relay_slots > self.clients - 1:
            raise ConfigError(f"relay_slots = {self.relay_slots}: must be at most M-1 = {self.clients - 1}")
        if self.pe is not None and (given := [name for name in FADING if name in self.model_fields_set]):
            raise ConfigError(f"{given[0]} = {getattr(self, given[0])}: has no effect beside pe; give the one or the other")
        if self.pe is not None and self.channel != "bernoulli":
            raise ConfigError(f"channel = {self.channel!r}: pe is given, which only the bernoulli channel uses")
        if self.channel == "bernoulli" and self.pe is None:
            raise ConfigError("channel = 'bernoulli': needs pe, the outage probability")
        if (self.channel == "trace") != (self.trace is not None):
            raise ConfigError(f"channel = {self.channel!r}: the trace channel and trace = FILE need each other")
        for name in (*FADING, "pe"):
            self._check_links(name)
        if self.method == "colrel":
            self._check_relaying()
        return self

    def _check_relaying(self) -> None:
        if self.relay_slots != 1:
            raise ConfigError(f"relay_slots = {self.relay_slots}: colrel has 1 relay slot")
        if nodes := cut_off(self.outage):
            raise ConfigError(
                f"method = 'colrel': node {nodes[0]} reaches the PS on no path, of its own or through another node, with "
                f"a probability of {MIN_PATH:g} or more: no weights can make up for that"
            )

    def _check_links(self, name: str) -> None:
        value: float | LinkTable | None = getattr(self, name)
        if value is None:
            return
        links = self.per_link(name)
        allowed = (links >= 0) & (links <= 1) if name == "pe" else (links > 0) & np.isfinite(links)
        if not allowed.all():
            wrong = links[~allowed][0]
            raise ConfigError(f"{name} = {wrong:g}: must {'lie in [0, 1]' if name == 'pe' else 'be positive'}")

    def per_link(self, name: str) -> NDArray[np.float64]:
        """A link value as M × (M + 1): row m holds the links of sender m, to each node and, last, to the PS."""
        value: float | LinkTable = getattr(self, name)
        shape = (self.clients, self.clients + 1)
        if not isinstance(value, LinkTable):
            return np.full(shape, value)
        if len(value.server) != self.clients or {len(row) for row in (value.nodes, *value.nodes)} != {self.clients}:
            raise ConfigError(
                f"{name}: must give {self.clients} rows of {self.clients} for nodes and {self.clients} for server"
            )
        return np.hstack([np.array(value.nodes), np.array(value.server)[:, None]])

    @property
    def outage(self) -> NDArray[np.float64]:
        """The outage probability of each link, M × (M + 1) as `per_link`; for recorded links by snr, rate and sigma2."""
        if self.method_traits.perfect_links or self.channel == "perfect":
            return np.zeros((self.clients, self.clients + 1))
        if self.pe is not None:
            return self.per_link("pe")
        return outage_probability(*(self.per_link(name) for name in FADING))

    @property
    def method_traits(self) -> Method:
        """The method that `method` and `anonymous_variant` name."""
        return method(self.method, self.anonymous_variant)

    @property
    def own_code(self) -> dict[str, str]:
        """The settings that name a user's own functions, `model` or `dataset`, with these names."""
        return {what: name for what in ("model", "dataset") if is_own(name := getattr(self, what))}

    @property
    def partition_scheme(self) -> Partition:
        """The partition that `partition` names."""
        return parse_partition(self.partition)

    def to_toml(self) -> str:
        """The complete configuration as TOML, which runs again as it is, or with other settings in place of some.

        What merely followed from other settings stands in comments, so that it still follows when these change. The run
        folder is left out.
        """
        values = self._for_others()
        followed = {name: values.pop(name) for name in FOLLOWS if name not in self.model_fields_set}
        comments = "".join(f"# {line}\n" for line in tomli_w.dumps(followed).splitlines())
        return f"{tomli_w.dumps(values)}\n# follows from the settings above:\n{comments}"

    def to_json(self) -> str:
        """The complete configuration for a node, without the faults: each node is told of its own where it is started."""
        return json.dumps({name: value for name, value in self._for_others().items() if name != "faults"})

    def _for_others(self) -> dict[str, Any]:
        """Every setting that has a value and an effect, but for those of this process alone."""
        unused = set(FADING) if self.pe is not None else set()
        if not self.faults:
            unused.add("faults")
        return self.model_dump(exclude_none=True, exclude={"out", "json_output", *unused})


def load_config(path: Path | None, overrides: Mapping[str, object]) -> Config:
    """The configuration in a TOML file (if any) with some settings replaced.

    Links that are overridden take the place of the file's, be it by pe or by fading. Raises ConfigError, whose text has
    one line per mistake: the setting, its value and what is allowed.
    """
    values = read_toml(path) if path is not None else {}
    if wrong := of_wrong_type(values):
        raise ConfigError("\n".join(f"{path}: {mistake}" for mistake in wrong))
    if "pe" in overrides:
        replaced = {*FADING, "channel"}
    elif set(FADING) & set(overrides):
        replaced = {"pe", "channel"}
    else:
        replaced = set()
    kept = {name: value for name, value in values.items() if name not in replaced}
    try:
        return Config.model_validate(kept | dict(overrides))
    except pydantic.ValidationError as error:
        mistakes = []
        for detail in error.errors():
            if _is_cause(detail):
                where = f"{path}: " if path is not None and detail["loc"][0] not in overrides else ""
                mistakes.append(where + _explain(detail))
        raise ConfigError("\n".join(mistakes)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, with underscores for hyphens in their names. Raises ConfigError."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return {key.replace("-", "_"): value for key, value in values.items()}


def of_wrong_type(values: Mapping[str, object]) -> list[str]:
    """What is wrong with settings in a file that are texts or switches where numbers are due, or the other way round.

    From a command line all are texts, so pydantic makes sense of them.
    """
    due = {int: "a whole number", float: "a number", bool: "true or false"}
    return [
        f"{name} = {json.dumps(value)}: must be {due[kind]}"
        for name, value in values.items()
        if (kind := getattr(Config.model_fields.get(name), "annotation", None)) in due
        and (isinstance(value, str) or isinstance(value, bool) != (kind is bool))
    ]


def _is_cause(detail: Any) -> bool:
    return bool(detail["type"] != "default_factory_not_called")


def _explain(detail: Any) -> str:
    """One line for a person about one of pydantic's errors."""
    field = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        names = [info.alias or name for name, info in Config.model_fields.items()]
        close = difflib.get_close_matches(field, names, n=1, cutoff=0.7)
        return f"{field}: unknown setting; " + (f"did you mean {close[0]}?" if close else f"known are {', '.join(names)}")
    return f"{field} = {detail['input']}: {rule_in_words(detail)}"
