"""Writes an invoice for each order, once: an application to break with `highwater chaos --app`.

usage: python invoices.py [--commit-first]

An error ends it, and whatever runs it starts it again: what was not committed is done once more.

--commit-first is a mistake that many applications make: the order is marked as done before its
invoice is stored, so a kill between the two loses the invoice.
"""

import json
import os
import sys
import time

from confluent_kafka import Consumer, Producer

SERVERS = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
COMMIT_FIRST = "--commit-first" in sys.argv

orders = Consumer(
    {
        **SERVERS,
        "group.id": os.environ["KAFKA_GROUP_ID"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "isolation.level": "read_committed",
    }
)
orders.subscribe([os.environ["HIGHWATER_INPUT"]])


def batches():
    while True:
        if batch := [order for order in orders.consume(500, 0.01) if order.error() is None]:
            yield batch


def write(invoices, order):
    invoice = {**json.loads(order.value()), "paid": False}
    invoices.produce(os.environ["HIGHWATER_OUTPUT"], json.dumps(invoice), order.key())


def exactly_once():
    """Invoices and offsets in one transaction: both are there, or neither."""
    transactional_id = os.environ["KAFKA_TRANSACTIONAL_ID"]
    invoices = Producer({**SERVERS, "transactional.id": transactional_id})
    invoices.init_transactions()
    for batch in batches():
        invoices.begin_transaction()
        for order in batch:
            write(invoices, order)
        done = orders.position(orders.assignment())
        invoices.send_offsets_to_transaction(done, orders.consumer_group_metadata())
        invoices.commit_transaction()


def commit_first():
    invoices = Producer({**SERVERS, "enable.idempotence": True})
    for batch in batches():
        orders.commit(asynchronous=False)
        time.sleep(1)  # its work: a kill at any time falls between commit and invoice
        for order in batch:
            write(invoices, order)
        invoices.flush()


commit_first() if COMMIT_FIRST else exactly_once()
