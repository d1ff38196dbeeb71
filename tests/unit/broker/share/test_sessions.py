"""Share sessions: their epochs, their partitions and their end."""

from __future__ import annotations

import pytest

from highwater.broker.share.sessions import ShareSessions, TopicIdPartition
from highwater.kafka.errors import ApiError, ErrorCode

A, B, C = (TopicIdPartition(bytes(16), n) for n in range(3))


def refused(sessions: ShareSessions, epoch: int, member: str = "m") -> ErrorCode:
    with pytest.raises(ApiError) as e:
        sessions.use("g", member, epoch)
    return e.value.code


def test_each_request_has_the_next_epoch() -> None:
    sessions = ShareSessions(5)
    session = sessions.open("g", "m", 1, [A])
    assert refused(sessions, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.use("g", "m", 1) is session
    assert refused(sessions, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.use("g", "m", -1) is session
    assert session.epoch == 2
    session.epoch = 0x7FFFFFFF
    sessions.use("g", "m", 0x7FFFFFFF)
    assert session.epoch == 1
    assert refused(sessions, 1, "n") is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_has_one_session() -> None:
    sessions = ShareSessions(1)
    first = sessions.open("g", "m", 1, [A])
    second = sessions.open("g", "m", 2, [A, B])
    assert (first.closed, len(sessions), sessions.partitions()) == (True, 1, 2)
    assert sessions.disconnected(1) == []
    assert sessions.has_group("g")
    with pytest.raises(ApiError) as e:
        sessions.open("g", "n", 3, [A])
    assert e.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.disconnected(2) == [second]
    assert (len(sessions), sessions.evictions, sessions.has_group("g")) == (0, 1, False)
    sessions.close(second)


def test_partitions_take_turns() -> None:
    sessions = ShareSessions(1)
    session = sessions.open("g", "m", 1, [A, B])
    assert session.in_turn() == [A, B]
    sessions.use("g", "m", 1)
    session.change([C], [])
    assert session.in_turn() == [B, C, A]
    session.change([], [A, B, C])
    assert session.in_turn() == []


def test_an_answer_names_what_is_new() -> None:
    session = ShareSessions(1).open("g", "m", 1, [A])
    assert not session.is_news(A, 0, 0)
    assert session.is_news(A, 10, 0)
    session.change([A, B], [])
    assert [session.is_news(p, 0, 0) for p in (A, B, B)] == [False, True, False]
    assert [session.is_news(A, 0, error) for error in (3, 0, 0)] == [True, True, False]
