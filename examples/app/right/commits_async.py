"""Right, where an invoice may be written twice: what is stored is committed, in the background.

The offsets are named: without them librdkafka commits what has been consumed when it comes to it,
and that may be the next batch, whose invoices are not stored yet.
"""

import os

from confluent_kafka import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}

orders = Consumer({**SERVERS, **GROUP, "enable.auto.commit": False})
orders.subscribe([os.environ["HIGHWATER_INPUT"]])
invoices = Producer({**SERVERS, "enable.idempotence": True})


def stored(error, invoice):
    if error is not None:
        print(f"an invoice is not stored: {error}")
        os._exit(1)


while True:
    batch = [order for order in orders.consume(100, 0.1) if order.error() is None]
    for order in batch:
        topic = os.environ["HIGHWATER_OUTPUT"]
        invoices.produce(topic, order.value(), order.key(), on_delivery=stored)
    invoices.flush()
    if batch:
        orders.commit(offsets=orders.position(orders.assignment()), asynchronous=True)
