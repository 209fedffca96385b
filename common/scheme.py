"""What a configuration means for the radio: its network code and its channel."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dncfl.common.channel import BernoulliChannel, Channel, PerfectChannel, RayleighChannel, outage_probability
from dncfl.common.code import DiversityNetworkCode
from dncfl.common.config import Config
from dncfl.common.errors import ConfigError
from dncfl.common.trace import TraceChannel, read_trace


def network_code(config: Config) -> DiversityNetworkCode:
    """The code of a run; methods that do not relay have no relay slots."""
    relay_slots = config.relay_slots if config.method_traits.relays else 0
    return DiversityNetworkCode(config.clients, relay_slots, min_field=config.field)  # a prime, so p is just this


def channel(config: Config) -> Channel:
    """The links of a run. Raises DataError when a recorded trace cannot be read."""
    if config.method_traits.perfect_links or config.channel == "perfect":
        return PerfectChannel(config.clients)
    if config.trace is not None:
        return TraceChannel(read_trace(Path(config.trace)), config.clients)
    if config.channel == "bernoulli":
        return BernoulliChannel(config.seed, config.per_link("pe"))
    return RayleighChannel(
        config.seed, snr=config.per_link("snr"), rate=config.per_link("rate"), sigma2=config.per_link("sigma2")
    )


def link_outage(config: Config) -> NDArray[np.float64]:
    """The outage probability of each link: M × (M + 1), q_mk and, in the last column, q_m towards the PS.

    Raises ConfigError for links out of a recorded trace, which have none.
    """
    if config.method_traits.perfect_links or config.channel == "perfect":
        return np.zeros((config.clients, config.clients + 1))
    if config.trace is not None:
        raise ConfigError("channel = 'trace': recorded links have no outage probability; give pe or snr")
    if config.channel == "bernoulli":
        return config.per_link("pe")
    fading = (config.per_link(name) for name in ("snr", "rate", "sigma2"))
    outage: NDArray[np.float64] = np.vectorize(outage_probability)(*fading)
    return outage
