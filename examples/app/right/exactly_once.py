"""Right: invoices and offsets are in one transaction.

An error ends it, and whatever runs it starts it again: what was not committed is done once more.
So does a call that does not return: librdkafka's send_offsets_to_transaction may wait for ever for
a coordinator that has died (its issue 5511), and the whole group would wait for this member.
"""

import faulthandler
import os

from confluent_kafka import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}

ISOLATED = {"enable.auto.commit": False, "isolation.level": "read_committed"}

orders = Consumer({**SERVERS, **GROUP, **ISOLATED})
orders.subscribe([os.environ["HIGHWATER_INPUT"]])
invoices = Producer({**SERVERS, "transactional.id": os.environ["KAFKA_TRANSACTIONAL_ID"]})
invoices.init_transactions()

while True:
    faulthandler.dump_traceback_later(20, exit=True)
    batch = [order for order in orders.consume(100, 0.1) if order.error() is None]
    if batch:
        invoices.begin_transaction()
        for order in batch:
            invoices.produce(os.environ["HIGHWATER_OUTPUT"], order.value(), order.key())
        done = orders.position(orders.assignment())
        invoices.send_offsets_to_transaction(done, orders.consumer_group_metadata())
        invoices.commit_transaction()
