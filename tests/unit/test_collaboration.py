"""Collaborative relaying: sums by hand, unbiased rounds over random links, and what is refused."""

import struct
from itertools import permutations

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

from dncfl.common.channel import PerfectChannel
from dncfl.common.collaboration import CollaborativeRelaying
from dncfl.common.config import Config, load_config
from dncfl.common.errors import ChecksumError, ConfigError, WireError
from dncfl.common.message import encode_message
from dncfl.common.payload import Payload
from dncfl.common.radio import Radio
from dncfl.common.relay_weights import variance_bound
from dncfl.common.scheme import channel, network_code
from dncfl.common.weighted_sum import decode_sum, encode_sum
from dncfl.launch.reference import simulated
from dncfl.server.aggregation import aggregate, proves_itself
from dncfl.server.decoder import Equation
from dncfl.server.verification import verify
from tests.unit.updates import format_of, update_of

LEVELS = {0: [0, 127, 254], 1: [254, 200, 254], 2: [100, 127, 130], 3: [140, 250, 3]}
BOUNDS = {0: 0.1, 1: 0.25, 2: 0.1, 3: 0.5}
UPDATES = {m: np.array([2 * BOUNDS[m] / 254 * level - BOUNDS[m] for level in levels]) for m, levels in LEVELS.items()}
BETWEEN = [[0, 0.1, 0.5, 0.3], [0.2, 0, 0.4, 0.1], [0.1, 0.7, 0, 0.2], [0.3, 0.2, 0.6, 0]]
TO_PS = [1.0, 0.2, 0.9, 0.4]
PE = {"nodes": BETWEEN, "server": TO_PS}
THETA = np.array([0.5, -0.25, 1.0], dtype=np.float32)


def _config(**settings: object) -> Config:
    return load_config(None, {"clients": 4, "pe": PE, "method": "colrel"} | settings)


def _messages(round: int = 1) -> dict[int, Payload]:
    return {
        m: encode_message(update_of(np.array(levels, dtype=np.uint8), BOUNDS[m]), 257, round=round, sender=m)
        for m, levels in LEVELS.items()
    }


def _code(config: Config) -> CollaborativeRelaying:
    code = network_code(config, format_of(3))
    assert isinstance(code, CollaborativeRelaying)
    return code


def test_a_node_sends_the_weighted_sum_of_what_it_holds() -> None:
    code, messages = _code(_config()), _messages()
    held = {m: messages[m] for m in (3, 0, 2)}
    (payload,) = code.codewords(3, held)
    expected = [sum(code.weights[3, k] * UPDATES[k][x] for k in (0, 2, 3)) for x in range(3)]
    assert decode_sum(payload, round=1, sender=3) == pytest.approx(expected, rel=1e-6)
    assert {code.codewords(3, dict(order))[0].plane.tobytes() for order in permutations(held.items())} == {
        payload.plane.tobytes()
    }
    assert code.codewords(3, held, []) == []


def test_the_ps_adds_the_sums_and_divides_by_all() -> None:
    sums = {m: np.array([0.1 * m, -1.5, 3e-5], dtype=np.float32) for m in (0, 1, 3)}
    payloads = {m: encode_sum(values) for m, values in sums.items()}
    expected = THETA + (sums[0] + sums[1] + sums[3]) / 4
    assert aggregate(_config(), format_of(3), THETA, payloads, 1) == pytest.approx(expected, abs=1e-6)
    assert (
        len({aggregate(_config(), format_of(3), THETA, dict(order), 1).tobytes() for order in permutations(payloads.items())})
        == 1
    )
    assert np.array_equal(aggregate(_config(), format_of(3), THETA, {}, 1), THETA)


ROUNDS = 2000


def _rounds(code: CollaborativeRelaying, messages: dict[int, Payload]) -> NDArray[np.float64]:
    """What is added to θ in each of some rounds over random links, (ROUNDS, 3); node 0 always needs the others."""
    config, theta, added = _config(seed=7), np.zeros(3, dtype=np.float32), []
    links = channel(config)
    for round in range(1, ROUNDS + 1):
        communication = simulated(config, links, round)
        communication.code = code
        added.append(aggregate(config, format_of(3), theta, communication.received(messages, code), round))
    return np.array(added, dtype=np.float64)


def test_the_mean_over_rounds_is_the_mean_of_all_updates() -> None:
    added = _rounds(_code(_config()), _messages())
    mean = sum(UPDATES.values()) / 4
    assert (np.abs(added.mean(axis=0) - mean) < 3 * added.std(axis=0) / np.sqrt(ROUNDS)).all()


def test_equal_updates_vary_less_than_with_uniform_weights() -> None:
    """As by the bound S, which equal updates attain."""
    uniform, optimal = CollaborativeRelaying(_config().outage, message_format=format_of(3)), _code(_config())
    paths = (1 - _config().outage[:, -1:]) * (1 - _config().outage[:, :-1]).T
    uniform.__dict__["weights"] = (paths > 0) / paths.sum(axis=0)
    expected, seen = [], []
    for code in (optimal, uniform):
        added = _rounds(code, dict.fromkeys(range(4), _messages()[1]))
        assert (np.abs(added.mean(axis=0) - UPDATES[1]) < 3 * added.std(axis=0) / np.sqrt(ROUNDS)).all()
        seen.append(added.var(axis=0).sum())
        expected.append(variance_bound(code.weights, _config().outage) * (UPDATES[1] ** 2).sum() / 4**2)
    assert seen == pytest.approx(expected, rel=0.1)  # a variance of 2000 draws errs by a few percent
    assert seen[0] < seen[1]
    assert expected[0] < 0.8 * expected[1]


def test_w_are_the_nodes_whose_updates_are_in_a_sum_that_arrived() -> None:
    code = _code(_config())
    assert code.weights[0].tolist() == [0, 0, 0, 0]  # node 0 does not reach the PS
    held = {0: (0, 3), 1: (0, 1), 2: (2,), 3: (3,)}
    assert code.weights[1, 0] > 0
    assert code.counted((0,), held) == ()
    assert code.counted((1, 3), held) == (0, 1, 3)
    assert code.equations(np.ones((4, 4)), [1, 1, 1, 1], [[0], [1], [0], [1]]).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("clients", [3, 20])
def test_sums_cross_the_wire(clients: int) -> None:
    """Also where the field is large, and only in the slot that is theirs."""
    code = _code(load_config(None, {"clients": clients, "method": "colrel"}))
    sender, ps = (Radio(code, PerfectChannel(clients), station, format_of(3)) for station in (1, clients))
    values = np.array([1e-30, -2.5, 0.1], dtype=np.float32)
    frames = [bytes(memoryview(frame).cast("B")) for frame in sender.frames(4, 1, 2, [0, 1], encode_sum(values))]
    received = ps.receive(frames).payload
    assert received is not None
    assert np.array_equal(decode_sum(received, round=4, sender=1), values)
    too_early = [bytes(memoryview(frame).cast("B")) for frame in sender.frames(4, 1, 1, [1], encode_sum(values))]
    with pytest.raises(WireError, match="16 bytes cannot hold 19 symbols"):
        ps.receive(too_early)


def test_a_sum_proves_itself() -> None:
    payload = encode_sum(np.array([1.0, 2.0], dtype=np.float32))
    assert proves_itself(_config(), format_of(2), payload, round=1, sender=0)
    assert proves_itself(_config(), format_of(2), Payload(payload.plane.astype(np.uint16)), round=1, sender=0)
    for x in range(len(payload)):
        for wrong in (payload.plane[x] ^ 1, 256):
            symbols = payload.plane.astype(np.uint16)
            symbols[x] = wrong
            assert not proves_itself(_config(), format_of(2), Payload.of(symbols, 257), round=1, sender=0)
    for value in (np.inf, np.nan):
        data = struct.pack("<2f", 1.0, value)
        plane = np.frombuffer(xxhash.xxh3_64_digest(data)[:4] + data, dtype=np.uint8)
        with pytest.raises(ChecksumError, match="the sum of node 2 in round 5 holds values that are not finite"):
            decode_sum(Payload(plane), round=5, sender=2)


def test_a_sum_that_does_not_prove_itself_is_left_out_and_its_sender_named() -> None:
    config = _config()
    code, messages = _code(config), _messages()
    said = {m: code.codewords(m, messages)[0] for m in range(3)}
    wrong = said[1].plane.copy()
    wrong[-1] ^= 1
    payloads = said | {1: Payload(wrong)}
    equations = [Equation(m, 2, 1, code.coefficients(m, 2, messages), payload) for m, payload in payloads.items()]

    def proof(sender: int, payload: Payload) -> bool:
        return proves_itself(config, format_of(3), payload, round=1, sender=sender)

    verdict = verify(equations, 4, code.p, proof, np.random.default_rng(0))
    assert (verdict.suspects, verdict.settled, verdict.dropped) == ((1,), True, (equations[1],))
    assert set(verdict.messages) == {0, 2}
    assert all(np.array_equal(verdict.messages[m].symbols, said[m].symbols) for m in (0, 2))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="relay_slots = 2: colrel has 1 relay slot"):
        _config(relay_slots=2)
    pe = {"nodes": [[0, 1, 1], [0, 0, 0], [0, 0, 0]], "server": [1, 0, 0]}
    with pytest.raises(ConfigError, match="method = 'colrel': node 0 reaches the PS on no path"):
        load_config(None, {"clients": 3, "pe": pe, "method": "colrel"})
    assert load_config(None, {"clients": 3, "pe": pe, "method": "dnc"}).relay_slots == 2
    assert load_config(None, {"clients": 3, "method": "colrel"}).relay_slots == 1


def test_the_outage_of_each_link() -> None:
    assert load_config(None, {}).outage == pytest.approx(np.full((10, 11), 0.19445), abs=5e-6)
    assert np.array_equal(_config().outage, np.hstack([BETWEEN, np.array(TO_PS)[:, None]]))
    assert not load_config(None, {"channel": "perfect"}).outage.any()
    assert not load_config(None, {"method": "qfl"}).outage.any()
