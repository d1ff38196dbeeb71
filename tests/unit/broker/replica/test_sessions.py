"""Both ends of a fetch session, against each other."""

from __future__ import annotations

from itertools import count
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.broker.replica.feed import Feed
from highwater.broker.replica.fetch_sessions import EVICT_AFTER_MS, FetchSession, FetchSessions
from highwater.broker.replica.replica_manager import ReplicaManager
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import (
    CONSUMER_REPLICA_ID,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
)
from highwater.kafka.wire.fetch_session_handler import FetchSessionHandler

TPS = [TopicPartition("t", i) for i in range(4)]


FOLLOWER = 1


def no_manager(session_id: int, replica_id: int) -> Feed:
    """A feed that is asked for nothing."""
    return Feed(session_id, replica_id, cast(ReplicaManager, None))


def sessions(slots: int = 10) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, lambda: next(ids), no_manager)


def wanted(offsets: dict[int, int]) -> dict[TopicPartition, FetchPartition]:
    return {TPS[i]: FetchPartition(TPS[i], 0, o, -1, 0, 1000) for i, o in offsets.items()}


def ask(
    client: FetchSessionHandler, offsets: dict[int, int], replica_id: int = CONSUMER_REPLICA_ID
) -> FetchRequest:
    return client.request(
        wanted(offsets), replica_id=replica_id, max_wait_ms=1, min_bytes=1, max_bytes=1000
    )


def entered(cache: FetchSessions, request: FetchRequest) -> FetchSession:
    """A consumer's session."""
    session, _ = cache.enter(request, 0)
    assert isinstance(session, FetchSession)
    return session


def hw(i: int, high_watermark: int, size: int = 0) -> FetchedPartition:
    return FetchedPartition(TPS[i], 0, high_watermark, high_watermark, 0, b"x" * size, size)


@pytest.mark.thorough
@pytest.mark.parametrize("replica_id", [CONSUMER_REPLICA_ID, FOLLOWER])
@given(st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 2), min_size=1), max_size=8))
def test_the_leader_always_reads_exactly_what_the_client_wants(
    replica_id: int, rounds: list[dict[int, int]]
) -> None:
    cache, client = sessions(), FetchSessionHandler()
    for offsets in rounds:
        session, _ = cache.enter(ask(client, offsets, replica_id), 0)
        assert session is not None
        if isinstance(session, Feed):
            asked = {fed.asked for fed in session.news}
            assert asked == {fed.asked for fed in session.partitions.values()}, "none rests"
        else:
            asked = set(session.partitions.values())
        assert {p.tp: p for p in asked} == wanted(offsets)
        client.answered(FetchAnswer(0, session.id, []))


def test_only_news_is_answered() -> None:
    cache, client = sessions(), FetchSessionHandler()
    session = entered(cache, ask(client, {0: 0, 1: 0}))
    assert session.select([hw(0, 5), hw(1, 5)]) == [hw(0, 5), hw(1, 5)]
    assert session.select([hw(0, 5), hw(1, 6)]) == [hw(1, 6)]
    assert session.select([hw(0, 5, size=3), hw(1, 6)]) == [hw(0, 5, size=3)]
    error = FetchedPartition(TPS[1], 6, -1, -1, -1, b"", 0)
    assert session.select([error]) == [error]
    assert session.select([error]) == [error], "an error is repeated until it is gone"


def test_partitions_with_records_go_to_the_end_of_the_order() -> None:
    cache, client = sessions(), FetchSessionHandler()
    session = entered(cache, ask(client, {0: 0, 1: 0, 2: 0}))
    session.select([hw(0, 5, size=3), hw(1, 5), hw(2, 5)])
    client.answered(FetchAnswer(0, session.id, []))
    session = entered(cache, ask(client, {0: 0, 1: 0, 2: 0}))
    assert list(session.partitions) == [TPS[1], TPS[2], TPS[0]]


def test_wrong_ids_and_epochs_are_refused() -> None:
    cache, client = sessions(), FetchSessionHandler()
    session = entered(cache, ask(client, {0: 0}))
    client.answered(FetchAnswer(0, session.id, []))
    request = ask(client, {0: 1})
    with pytest.raises(ApiError) as e:
        cache.enter(request._replace(session_epoch=7), 0)
    assert e.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with pytest.raises(ApiError) as e:
        cache.enter(request._replace(session_id=99), 0)
    assert e.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_is_of_one_replica() -> None:
    cache, client = sessions(), FetchSessionHandler()
    for replica_id in (CONSUMER_REPLICA_ID, FOLLOWER):
        session, _ = cache.enter(ask(client, {0: 0}, replica_id), 0)
        assert session is not None
        client.answered(FetchAnswer(0, session.id, []))
        for other in {CONSUMER_REPLICA_ID, FOLLOWER, 2} - {replica_id}:
            with pytest.raises(ApiError) as e:
                cache.enter(ask(client, {0: 1}, other), 0)
            assert e.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        client.reset()


def test_an_error_makes_the_follower_start_over_with_everything() -> None:
    client = FetchSessionHandler()
    ask(client, {0: 0, 1: 0})
    client.answered(FetchAnswer(0, 5, []))
    assert ask(client, {0: 0, 1: 0}).partitions == []
    client.answered(FetchAnswer(int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0, []))
    again = ask(client, {0: 0, 1: 0})
    assert (again.session_id, again.session_epoch) == (0, 0)
    assert len(again.partitions) == 2


def test_a_full_cache_serves_without_session_and_evicts_the_idle() -> None:
    cache = sessions(slots=1)
    consumer = ask(FetchSessionHandler(), {0: 0})
    follower = ask(FetchSessionHandler(), {0: 0}, FOLLOWER)
    assert isinstance(cache.enter(consumer, 0)[0], FetchSession)
    assert cache.enter(consumer, 1000) == (None, True)
    assert isinstance(cache.enter(follower, 1000)[0], Feed), "a follower takes a client's place"
    assert cache.enter(consumer, 1001) == (None, True)
    assert cache.enter(consumer, 1000 + EVICT_AFTER_MS)[0] is not None
