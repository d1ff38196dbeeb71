"""Wrong: an invoice that could not be written is forgotten, and its order is committed."""

import os

from confluent_kafka import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}

orders = Consumer({**SERVERS, **GROUP, "enable.auto.commit": False})
orders.subscribe([os.environ["HIGHWATER_INPUT"]])
invoices = Producer({**SERVERS, "enable.idempotence": True})

while True:
    batch = [order for order in orders.consume(100, 0.1) if order.error() is None]
    for order in batch:
        invoices.produce(os.environ["HIGHWATER_OUTPUT"], order.value(), order.key())
    invoices.flush()  # it returns when each is written, or has failed
    if batch:
        orders.commit(asynchronous=False)
