"""Wrong: offsets are committed by a timer, whatever has become of the invoices.

librdkafka commits what it has handed out, every auto.commit.interval.ms.
"""

import os

from confluent_kafka import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}

orders = Consumer({**SERVERS, **GROUP, "auto.commit.interval.ms": 1000})
orders.subscribe([os.environ["HIGHWATER_INPUT"]])
invoices = Producer({**SERVERS, "enable.idempotence": True})

while True:
    for order in orders.consume(100, 0.1):
        if order.error() is None:
            invoices.produce(os.environ["HIGHWATER_OUTPUT"], order.value(), order.key())
    invoices.poll(0)
