"""What a configuration means for the radio: the format of messages, its network code and its channel."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from dncfl.common.channel import BernoulliChannel, Channel, PerfectChannel, RayleighChannel
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.collaboration import CollaborativeRelaying
from dncfl.common.config import Config
from dncfl.common.message import MessageFormat
from dncfl.common.network_code import NetworkCode
from dncfl.common.repetition import RepetitionCode
from dncfl.common.trace import TraceChannel, read_trace
from dncfl.common.update import part_sizes


def message_format(config: Config, tensor_sizes: Sequence[int]) -> MessageFormat:
    """The format of a run's messages, for a model of tensors with these sizes."""
    return MessageFormat(config.levels, part_sizes(config.bound, tensor_sizes))


@lru_cache(maxsize=8)
def network_code(config: Config, messages: MessageFormat | None = None) -> NetworkCode:
    """The code of a run; methods that do not relay have no relay slots. `messages`: their format, for whoever combines them."""
    sizes = config.clients, config.relay_slots, config.field  # a prime, so p is just this
    match config.method_traits.relays:
        case "coded":
            return DiversityNetworkCode(*sizes)
        case "repeated":
            return RepetitionCode(*sizes, num_levels=config.levels)
        case "summed":
            return CollaborativeRelaying(config.outage, config.field, messages)
        case None:
            return DiversityNetworkCode(config.clients, 0, config.field)


def channel(config: Config) -> Channel:
    """The links of a run. Raises DataError when a recorded trace cannot be read."""
    if config.method_traits.perfect_links or config.channel == "perfect":
        return PerfectChannel(config.clients)
    if config.channel == "trace":
        assert config.trace is not None  # which the configuration has seen to
        return TraceChannel(read_trace(Path(config.trace)), config.clients)
    if config.channel == "bernoulli":
        return BernoulliChannel(config.seed, config.per_link("pe"))
    return RayleighChannel(
        config.seed, snr=config.per_link("snr"), rate=config.per_link("rate"), sigma2=config.per_link("sigma2")
    )
