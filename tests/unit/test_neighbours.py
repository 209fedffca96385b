"""Who hears whom at a node, as the PS introduces members and others subscribe."""

import pytest

from dncfl.common.errors import WireError
from dncfl.common.wire import ready_topic
from dncfl.node.neighbours import MAX_HEARERS, Member, Neighbours

PS = ready_topic("ps")


def _member(node: int, incarnation: int = 7) -> Member:
    return incarnation, "10.0.0.1", 5000 + node


def _place(node: int) -> tuple[str, int]:
    return "10.0.0.1", 5000 + node


def test_connections_follow_from_what_has_changed() -> None:
    neighbours = Neighbours(0)
    assert neighbours.introduce(1, {m: _member(m) for m in range(3)}) == ([], [(1, _place(1)), (2, _place(2))])
    assert neighbours.introduce(2, {0: _member(0), 2: _member(2), 3: _member(3)}) == ([_place(1)], [(3, _place(3))])
    again = {0: _member(0), 2: _member(2, incarnation=8), 3: _member(3)}
    assert neighbours.introduce(3, again) == ([_place(2)], [(2, _place(2))]), "another life is another connection"
    assert (neighbours.edition, neighbours.incarnation(2), neighbours.endpoint(3)) == (3, 8, _place(3))
    assert (neighbours.incarnation(1), neighbours.endpoint(1)) == (None, None)


def test_all_hear_once_the_ps_and_each_member_has_subscribed() -> None:
    neighbours = Neighbours(1)
    neighbours.subscription_begins(PS)
    assert not neighbours.all_hear(), "nobody is introduced yet"
    neighbours.introduce(1, {m: _member(m) for m in range(3)})
    for m in (0, 2):
        assert not neighbours.all_hear()
        neighbours.subscription_begins(ready_topic(m, 7))
    assert neighbours.all_hear()
    neighbours.subscription_ends(PS)
    assert not neighbours.all_hear()
    neighbours.subscription_begins(PS)
    neighbours.introduce(2, {0: _member(0, incarnation=9), 1: _member(1)})
    assert not neighbours.all_hear(), "it is another life of node 0 that has subscribed"


def test_where_nothing_is_relayed_only_the_ps_must_hear() -> None:
    neighbours = Neighbours(1)
    neighbours.listens = False
    assert neighbours.introduce(1, {m: _member(m) for m in range(3)}) == ([], [])
    assert not neighbours.all_hear()
    neighbours.subscription_begins(PS)
    assert neighbours.all_hear()


def test_strangers_cannot_fill_the_memory() -> None:
    neighbours = Neighbours(0)
    for incarnation in range(1, MAX_HEARERS + 1):
        neighbours.subscription_begins(ready_topic(1, incarnation))
    with pytest.raises(WireError, match="too many"):
        neighbours.subscription_begins(PS)
    neighbours.subscription_ends(ready_topic(1, 1))
    neighbours.subscription_begins(PS)
