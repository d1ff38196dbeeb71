import json
import os

from confluent_kafka import Consumer, Producer

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


consumer = Consumer(
    {**BASE, **GROUP, "enable.auto.offset.store": False, "auto.commit.interval.ms": 500}
)
producer = Producer({**BASE, "enable.idempotence": True, "message.timeout.ms": 0})
consumer.subscribe([IN])


def stored_when_written(m):
    def delivered(error, _):
        if error:
            raise SystemExit(f"not written: {error}")
        try:
            consumer.store_offsets(m)
        except Exception as late:  # revoked meanwhile
            print("store:", late, flush=True)

    return delivered


while True:
    m = consumer.poll(0.1)
    producer.poll(0)
    if m is not None and not m.error():
        producer.produce(OUT, invoice(m.value()), m.key(), on_delivery=stored_when_written(m))
