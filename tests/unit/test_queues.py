"""How many messages may wait for a reader, against how ZeroMQ counts them."""

import pytest

from dncfl.common.sockets import QUEUED_BYTES, queue_for


def always_fits(at_once: int, limit: int) -> bool:
    """Whether so many at once find room, however late the sender hears what is read: after every (limit + 1) // 2 messages."""
    told_after = (limit + 1) // 2
    return all(unheard + at_once <= limit for unheard in range(told_after))


@pytest.mark.parametrize("at_once", range(2, 20))
def test_large_messages_find_room_and_no_more_than_that_may_wait(at_once: int) -> None:
    limit = queue_for(at_once, QUEUED_BYTES)
    assert always_fits(at_once, limit)
    assert not always_fits(at_once, limit - 1)


def test_one_at_once_waits_alone() -> None:
    assert queue_for(1, QUEUED_BYTES) == 1, "0 would be no limit at all"


def test_small_messages_wait_up_to_a_size() -> None:
    assert queue_for(3, QUEUED_BYTES // 100) == 100
