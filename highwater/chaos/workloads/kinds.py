"""Producers and consumers by the name of their library, each imported only where it is used."""

from __future__ import annotations

from highwater.chaos.workloads.pace import Pace
from highwater.chaos.workloads.recorder import Recorder, Topic
from highwater.chaos.workloads.workload_client import Client

KINDS = ("kafka-python", "confluent-kafka", "highwater")


def new_producer(
    kind: str, recorder: Recorder, topic: Topic, pace: Pace, name: str, acks: int = -1
) -> Client:
    """A producer of this kind; acks=1 is confluent-kafka's alone."""
    match kind:
        case "kafka-python":
            from highwater.chaos.workloads.kafka_python import KafkaPythonProducer

            return KafkaPythonProducer(recorder, topic, pace, name)
        case "highwater":
            from highwater.chaos.workloads.native import NativeProducer

            return NativeProducer(recorder, topic, pace, name)
        case _:
            from highwater.chaos.workloads.confluent import ConfluentProducer

            return ConfluentProducer(recorder, topic, pace, acks=acks, name=name)


def new_consumer(kind: str, recorder: Recorder, topics: list[Topic], name: str) -> Client:
    match kind:
        case "kafka-python":
            from highwater.chaos.workloads.kafka_python import KafkaPythonConsumer

            return KafkaPythonConsumer(recorder, topics, name)
        case "highwater":
            from highwater.chaos.workloads.native import NativeConsumer

            return NativeConsumer(recorder, topics, name)
        case _:
            from highwater.chaos.workloads.confluent import ConfluentConsumer

            return ConfluentConsumer(recorder, topics, name)
