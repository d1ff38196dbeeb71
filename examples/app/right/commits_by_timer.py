"""Right, where an invoice may be written twice: the timer commits only what is stored.

An order and its invoice have one key, so the invoices of a partition are stored in the order of its
orders.
"""

import os
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer

SERVERS = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}

orders = Consumer(
    {**SERVERS, **GROUP, "enable.auto.offset.store": False, "auto.commit.interval.ms": 1000}
)
invoices = Producer({**SERVERS, "enable.idempotence": True})
# what is still on its way when a partition goes would come after the invoices of its next owner
orders.subscribe([os.environ["HIGHWATER_INPUT"]], on_revoke=lambda *_: invoices.flush())


def write(order):
    def stored(error, invoice):
        if error is not None:
            print(f"an invoice is not stored: {error}")
            os._exit(1)
        with suppress(KafkaException):  # its partition may be another copy's by now
            orders.store_offsets(order)

    topic = os.environ["HIGHWATER_OUTPUT"]
    invoices.produce(topic, order.value(), order.key(), on_delivery=stored)


while True:
    for order in orders.consume(100, 0.1):
        if order.error() is None:
            write(order)
    invoices.poll(0)
