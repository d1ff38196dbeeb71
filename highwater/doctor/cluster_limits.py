"""A client's settings against those of its cluster and of its topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from highwater.doctor.client_findings import Effect, Finding
from highwater.doctor.dialects import ClientSettings
from highwater.doctor.talk import Talk
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import DescribeConfigsRequest, MetadataRequest

METADATA, DESCRIBE_CONFIGS = 4, 1
TOPIC, BROKER = 2, 4
Configs = dict[str, str]


def topics_of(talk: Talk, names: Sequence[str]) -> dict[str, Any]:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    return {topic.name: topic for topic in talk.ask(request, METADATA).topics}


def configs_of(talk: Talk, kind: int, name: str) -> Configs:
    """A resource's configuration in the cluster; empty if the client may not read it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    answer = talk.ask(
        DescribeConfigsRequest(resources=[resource], include_synonyms=False), DESCRIBE_CONFIGS
    )
    return {c.name: c.value or "" for result in answer.results for c in result.configs}


def topic_findings(talk: Talk, names: Sequence[str], settings: ClientSettings) -> Iterator[Finding]:
    for name, topic in topics_of(talk, names).items():
        what = f"topic {name}"
        if topic.error_code:
            code = ErrorCode(topic.error_code).name
            remedy = "create it, or correct the name" if "UNKNOWN_TOPIC" in code else ""
            yield Finding(Effect.UNUSABLE, what, f"The cluster answers {code}.", remedy)
            continue
        silent = [p.partition_index for p in topic.partitions if p.leader_id < 0]
        if silent:
            yield Finding(
                Effect.UNUSABLE,
                what,
                f"{len(silent)} of its {len(topic.partitions)} partitions have no leader.",
                "start the brokers that hold them",
            )
        if settings.role != "consumer":
            copies = min(len(p.replica_nodes) for p in topic.partitions)
            yield from _safety(what, copies, configs_of(talk, TOPIC, name), settings)


def _safety(
    what: str, copies: int, configs: Configs, settings: ClientSettings
) -> Iterator[Finding]:
    if settings.get("acks") == "all":
        least = configs.get("min.insync.replicas", "")
        if copies == 1:
            yield Finding(
                Effect.LOSES,
                f"{what}: one replica",
                "What its only broker loses is lost; and while it is down nothing is written.",
                "replication factor 3, min.insync.replicas=2",
            )
        elif least == "1":
            yield Finding(
                Effect.LOSES,
                f"{what}: min.insync.replicas=1",
                "With acks=all, a leader alone in the ISR acknowledges what no other broker has.",
                f"min.insync.replicas={max(2, copies - 1)}",
            )
        elif least.isdigit() and int(least) >= copies:
            yield Finding(
                Effect.REMARK,
                f"{what}: min.insync.replicas={least} of {copies} replicas",
                "One broker that is down stops all writes.",
                f"min.insync.replicas={copies - 1}",
            )
    if configs.get("unclean.leader.election.enable") == "true":
        yield Finding(
            Effect.LOSES,
            f"{what}: unclean.leader.election.enable=true",
            "A replica that lags may become leader; what it lacks is lost, acknowledged or not.",
            "unclean.leader.election.enable=false",
        )
    most = configs.get("max.message.bytes", "")
    if most.isdigit() and settings.number("max.request.size") > int(most) * 1.01 + 100:
        yield Finding(
            Effect.REMARK,
            f"{what}: max.message.bytes={most}",
            f"{settings.written('max.request.size')} lets the client send batches that the broker"
            " refuses (MESSAGE_TOO_LARGE).",
            f"max.message.bytes={settings.number('max.request.size'):.0f}, or less in the client",
        )


def broker_findings(talk: Talk, broker: int, settings: ClientSettings) -> Iterator[Finding]:
    """Limits that the cluster sets for sessions and transactions."""
    configs = configs_of(talk, BROKER, str(broker))
    if settings.role == "producer" and settings.get("transactional.id"):
        most = configs.get("transaction.max.timeout.ms", "")
        if most.isdigit() and settings.number("transaction.timeout.ms") > int(most):
            yield Finding(
                Effect.REFUSED,
                settings.written("transaction.timeout.ms"),
                f"The brokers allow {most} ms at most (transaction.max.timeout.ms):"
                " INVALID_TRANSACTION_TIMEOUT.",
                f"{settings.dialect.own_name('transaction.timeout.ms')}={most}",
            )
    if settings.role == "consumer" and settings.get("group.id"):
        low = configs.get("group.min.session.timeout.ms", "")
        high = configs.get("group.max.session.timeout.ms", "")
        asked = settings.number("session.timeout.ms")
        if low.isdigit() and high.isdigit() and not int(low) <= asked <= int(high):
            yield Finding(
                Effect.REFUSED,
                settings.written("session.timeout.ms"),
                f"The brokers allow {low} to {high} ms (group.min/max.session.timeout.ms):"
                " INVALID_SESSION_TIMEOUT.",
                f"{settings.dialect.own_name('session.timeout.ms')}={high}",
            )
