"""Applications under test, one process each: copier.py HOW.

slow: at least once, and slower than its input; reads-nothing; ends: never works at all.
examples/app has the others.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer

ENV = os.environ
HOW = sys.argv[1]
SERVERS = {"bootstrap.servers": ENV["KAFKA_BOOTSTRAP_SERVERS"]}


def consumer() -> Any:
    made = Consumer(
        {
            **SERVERS,
            "group.id": ENV["KAFKA_GROUP_ID"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "isolation.level": "read_committed",
        }
    )
    made.subscribe([ENV["HIGHWATER_INPUT"]])
    return made


def records(source: Any, most: int = 20, within_s: float = 0.2) -> list[Any]:
    return [message for message in source.consume(most, within_s) if message.error() is None]


def at_least_once(pause_s: float) -> None:
    source = consumer()
    sink = Producer({**SERVERS, "acks": "all", "linger.ms": 0})
    while True:
        batch = records(source)
        time.sleep(pause_s)
        for message in batch:
            sink.produce(ENV["HIGHWATER_OUTPUT"], message.value(), message.key())
        sink.flush()
        if batch:
            source.commit(asynchronous=False)


if HOW == "ends":
    sys.exit("the configuration is missing")
if HOW == "reads-nothing":
    time.sleep(600)
at_least_once(pause_s=2)
