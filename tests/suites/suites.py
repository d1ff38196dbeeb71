"""The suites, each with its version, the cluster that it needs, and its runner."""

from __future__ import annotations

from typing import Any

from tests.integration.process.app_runs import STREAMS
from tests.suites.c_suites import LIBRDKAFKA, librdkafka, librdkafka_848
from tests.suites.go_suites import FRANZ_GO, KAFKA_GO, SARAMA, franz_go, kafka_go, sarama
from tests.suites.java_steps_of_4 import JAVA_TOOLS_OF_4, java_tools_of_4
from tests.suites.java_suites import JAVA_TOOLS, java_tools, streams
from tests.suites.node_suites import KAFKAJS, PLATFORMATIC, kafkajs, platformatic
from tests.suites.python_suites import AIOKAFKA, KAFKA_PYTHON, KAZOO, aiokafka, kafka_python, kazoo
from tests.suites.running import Suite

_ONE = {
    "default.replication.factor": "1", "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip
_AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_ISR_STAYS = {"replica.lag.time.max.ms": "30000"}
"""Else a busy machine shrinks the ISR, and producers that are not idempotent repeat records."""

_LIBRDKAFKA: dict[str, Any] = {
    "version": LIBRDKAFKA, "source": "https://github.com/confluentinc/librdkafka",
    "properties": {**_AUTHORIZER, "num.partitions": "4", **_ISR_STAYS}, "tag": f"v{LIBRDKAFKA}",
}  # fmt: skip

SUITES = (
    Suite("franz-go", FRANZ_GO, "https://github.com/twmb/franz-go", franz_go),
    Suite(
        "sarama", SARAMA, "https://github.com/IBM/sarama", sarama,
        {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}, brokers=5,
    ),
    Suite(
        "kafka-go", KAFKA_GO, "https://github.com/segmentio/kafka-go", kafka_go,
        {
            **_ONE, **_AUTHORIZER, "num.partitions": "1", "message.max.bytes": "200000000",
            "group.min.session.timeout.ms": "6000",
        },
        brokers=1, ports=(9092,),
    ),
    Suite("librdkafka", run=librdkafka, **_LIBRDKAFKA),
    Suite("librdkafka-848", run=librdkafka_848, variant_of="librdkafka", **_LIBRDKAFKA),
    Suite(
        "kafkajs", KAFKAJS, "https://github.com/tulios/kafkajs", kafkajs,
        {
            **_AUTHORIZER, "default.replication.factor": "2", "num.partitions": "2",
            "min.insync.replicas": "1", "group.initial.rebalance.delay.ms": "0",
        },
        ports=(9092, 9095, 9098), tag=f"v{KAFKAJS}",
    ),
    Suite(
        "platformatic", PLATFORMATIC, "https://github.com/platformatic/kafka", platformatic,
        {
            **_AUTHORIZER, "super.users": "User:ANONYMOUS",  # its tests make rules of the cluster
            "group.initial.rebalance.delay.ms": "0", "group.consumer.heartbeat.interval.ms": "200",
        },
        ports=(9011, 9012, 9013), tag=f"v{PLATFORMATIC}",
    ),
    Suite("java-tools", JAVA_TOOLS, "https://kafka.apache.org", java_tools),
    Suite("java-tools-of-4", JAVA_TOOLS_OF_4, "https://kafka.apache.org", java_tools_of_4),
    Suite("streams", STREAMS, "https://kafka.apache.org/documentation/streams", streams),
    Suite(
        "kafka-python", KAFKA_PYTHON, "https://github.com/dpkp/kafka-python", kafka_python,
        {**_ONE, "num.partitions": "4"}, brokers=1,
    ),
    Suite(
        "aiokafka", AIOKAFKA, "https://github.com/aio-libs/aiokafka", aiokafka,
        {**_ONE, "num.partitions": "2"}, brokers=1, tag=f"v{AIOKAFKA}",
    ),
    Suite("kazoo", KAZOO, "https://github.com/python-zk/kazoo", kazoo),
)  # fmt: skip
