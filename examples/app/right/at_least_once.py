"""Right, where an invoice may be written twice: it is stored before its order is committed.

An invoice that cannot be stored ends the application before the commit; whatever runs it starts it
again.  Under --exactly-once it is wrong: a death between the two repeats the invoice.
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
        invoices.produce(
            os.environ["HIGHWATER_OUTPUT"], order.value(), order.key(), on_delivery=stored
        )
    invoices.flush()
    if batch:
        orders.commit(asynchronous=False)
