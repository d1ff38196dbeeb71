"""BrokerTopicMetrics: the place of each count, and the counts that stay of a deleted topic."""

from __future__ import annotations

from highwater.broker.replica.topic_stats import PREFIX, BrokerTopicStats
from highwater.kafka.errors import ApiError, ErrorCode


def page(stats: BrokerTopicStats) -> dict[str, dict[str, float]]:
    """The page, by name without its prefix, then by topic ("" for all)."""
    return {
        family.name.removeprefix(PREFIX): {
            dict(s.labels).get("topic", ""): s.value for s in family.samples
        }
        for family in stats.families()
    }


def test_all_topics_are_the_sum_also_of_those_that_have_gone() -> None:
    stats = BrokerTopicStats()
    stats["a"].bytes_in += 100
    stats["b"].bytes_in += 5
    assert page(stats)["bytesinpersec"] == {"": 105, "a": 100, "b": 5}
    stats.forget_all_but({"b"})
    assert page(stats)["bytesinpersec"] == {"": 105, "b": 5}
    stats["a"].bytes_in += 1
    assert page(stats)["bytesinpersec"] == {"": 106, "a": 1, "b": 5}


def test_only_the_unexpected_is_a_failure() -> None:
    stats = BrokerTopicStats()
    for code in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ):
        stats.produce_failed("a", ApiError(code), 10)
    found = page(stats)
    assert found["failedproducerequestspersec"] == {"": 1, "a": 1}
    assert found["bytesrejectedpersec"] == {"": 10, "a": 10}
    assert found["invalidmessagecrcrecordspersec"] == {"": 1}
    assert found["invalidoffsetorsequencerecordspersec"] == {"": 1}


def test_followers_bytes_are_replication_and_consumers_are_out() -> None:
    stats = BrokerTopicStats()
    stats.fetched("a", 0, 7, to_follower=True)
    stats.fetched("a", 0, 2, to_follower=False)
    stats.fetched("a", ErrorCode.OFFSET_OUT_OF_RANGE, 0, to_follower=False)
    stats.fetched("a", ErrorCode.UNKNOWN_SERVER_ERROR, 0, to_follower=False)
    found = page(stats)
    assert found["replicationbytesoutpersec"] == {"": 7}
    assert found["bytesoutpersec"] == {"": 2, "a": 2}
    assert found["totalfetchrequestspersec"] == {"": 4, "a": 4}
    assert found["failedfetchrequestspersec"] == {"": 1, "a": 1}
