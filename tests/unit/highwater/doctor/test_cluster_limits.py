"""What the cluster's own settings do to a client's records: each limit by an answer that breaks it,
and by one that does not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from highwater.doctor.client_findings import Effect
from highwater.doctor.cluster_limits import broker_findings, topic_findings
from highwater.doctor.dialects import JAVA, ClientSettings, settings_of
from highwater.doctor.talk import Talk
from highwater.kafka.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataResponse,
)

SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
LOSES, REMARK, REFUSED = Effect.LOSES, Effect.REMARK, Effect.REFUSED


class Cluster:
    """The answers of a cluster with one topic; it takes no other question."""

    def __init__(
        self, configs: dict[str, str], replicas: int = 3, leader: int = 1, error: int = 0
    ) -> None:
        self.configs, self.replicas, self.leader, self.error = configs, replicas, leader, error

    def ask(self, request: Any, version: int) -> Any:
        if isinstance(request, DescribeConfigsRequest):
            result = DescribeConfigsResponse.DescribeConfigsResult
            entry = result.DescribeConfigsResourceResult
            told = [entry(name=name, value=value) for name, value in self.configs.items()]
            return DescribeConfigsResponse(results=[result(error_code=0, configs=told)])
        assert not request.allow_auto_topic_creation, "it would change the cluster"
        topic = MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.leader,
            replica_nodes=[*range(self.replicas)],
        )
        partitions = [] if self.error else [partition]
        return MetadataResponse(
            topics=[topic(error_code=self.error, name="orders", partitions=partitions)]
        )


def settings(role: str, **given: str) -> ClientSettings:
    return settings_of({name.replace("_", "."): v for name, v in given.items()}, JAVA, role)


def told(cluster: Cluster, role: str = "producer", **given: str) -> list[tuple[Effect, str]]:
    found = topic_findings(cast("Talk", cluster), ["orders"], settings(role, **given))
    return [(finding.effect, finding.what) for finding in found]


def test_a_safe_topic_has_no_finding() -> None:
    assert told(Cluster(SAFE)) == []


@pytest.mark.parametrize(
    ("cluster", "given", "expected"),
    [
        (Cluster(SAFE, error=3), {}, [(Effect.UNUSABLE, "topic orders")]),
        (Cluster(SAFE, error=29), {}, [(Effect.UNUSABLE, "topic orders")]),
        (Cluster(SAFE, leader=-1), {}, [(Effect.UNUSABLE, "topic orders")]),
        (Cluster(SAFE, replicas=1), {}, [(LOSES, "topic orders: one replica")]),
        (
            Cluster(SAFE | {"min.insync.replicas": "1"}),
            {},
            [(LOSES, "topic orders: min.insync.replicas=1")],
        ),
        (Cluster(SAFE | {"min.insync.replicas": "1"}), {"acks": "1"}, []),
        (
            Cluster(SAFE | {"min.insync.replicas": "3"}),
            {},
            [(REMARK, "topic orders: min.insync.replicas=3 of 3 replicas")],
        ),
        (
            Cluster(SAFE | {"unclean.leader.election.enable": "true"}),
            {},
            [(LOSES, "topic orders: unclean.leader.election.enable=true")],
        ),
        (
            Cluster(SAFE | {"max.message.bytes": "1000"}),
            {"max_request_size": "2000000"},
            [(REMARK, "topic orders: max.message.bytes=1000")],
        ),
        (Cluster(SAFE | {"max.message.bytes": "3000000"}), {"max_request_size": "2000000"}, []),
    ],
)
def test_a_topic(
    cluster: Cluster, given: dict[str, str], expected: list[tuple[Effect, str]]
) -> None:
    assert told(cluster, **given) == expected


def test_what_only_a_producer_minds_is_not_told_to_a_consumer() -> None:
    assert told(Cluster({"min.insync.replicas": "1"}), "consumer") == []


@pytest.mark.parametrize(
    ("role", "given", "expected"),
    [
        ("producer", {"transactional_id": "t", "transaction_timeout_ms": "60001"},
         [(REFUSED, "transaction.timeout.ms=60001")]),
        ("producer", {"transactional_id": "t", "transaction_timeout_ms": "60000"}, []),
        ("producer", {"transaction_timeout_ms": "60001"}, []),
        ("consumer", {"group_id": "g", "session_timeout_ms": "5999"},
         [(REFUSED, "session.timeout.ms=5999")]),
        ("consumer", {"group_id": "g", "session_timeout_ms": "30001"},
         [(REFUSED, "session.timeout.ms=30001")]),
        ("consumer", {"group_id": "g", "session_timeout_ms": "6000"}, []),
        ("consumer", {"session_timeout_ms": "5999"}, []),
    ],
)  # fmt: skip
def test_the_brokers_limits(
    role: str, given: dict[str, str], expected: list[tuple[Effect, str]]
) -> None:
    limits = {
        "transaction.max.timeout.ms": "60000",
        "group.min.session.timeout.ms": "6000",
        "group.max.session.timeout.ms": "30000",
    }
    found = broker_findings(cast("Talk", Cluster(limits)), 1, settings(role, **given))
    assert [(finding.effect, finding.what) for finding in found] == expected
