"""Applications under test, one process each: copier.py HOW.

done-right: transactions; commits-first: offsets before outputs; acks-1: at least once, but for its
acks; reads-nothing; ends: never works at all.
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


def transactions() -> None:
    source = consumer()
    sink = Producer({**SERVERS, "transactional.id": ENV["KAFKA_TRANSACTIONAL_ID"]})
    sink.init_transactions()
    while True:
        if batch := records(source):
            sink.begin_transaction()
            for message in batch:
                sink.produce(ENV["HIGHWATER_OUTPUT"], message.value(), message.key())
            sink.send_offsets_to_transaction(
                source.position(source.assignment()), source.consumer_group_metadata()
            )
            sink.commit_transaction()


def plainly(acks: str, first: bool) -> None:
    source = consumer()
    idempotent = acks == "all"
    sink = Producer({**SERVERS, "acks": acks, "enable.idempotence": idempotent, "linger.ms": 0})
    while True:
        batch = records(source, 500, 0.01) if first else records(source)
        if batch and first:
            source.commit(asynchronous=False)
            time.sleep(1)  # its work: a kill at any time falls between commit and output
        for message in batch:
            sink.produce(ENV["HIGHWATER_OUTPUT"], message.value(), message.key())
        sink.flush()
        if batch and not first:
            source.commit(asynchronous=False)


if HOW == "ends":
    sys.exit("the configuration is missing")
if HOW == "reads-nothing":
    time.sleep(600)
if HOW == "done-right":
    transactions()
plainly("1" if HOW == "acks-1" else "all", first=HOW == "commits-first")
