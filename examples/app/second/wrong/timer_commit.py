import json
import os
import threading
import time

from confluent_kafka import Consumer, Producer

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


def check(error, _):
    if error:
        raise SystemExit(f"not written: {error}")


consumer = Consumer({**BASE, **GROUP, "enable.auto.commit": False})
producer = Producer({**BASE, "enable.idempotence": True})
consumer.subscribe([IN])


def commit_every_second():
    while True:
        time.sleep(1)
        try:
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
        except Exception as error:
            print("commit:", error, flush=True)


threading.Thread(target=commit_every_second, daemon=True).start()  # noqa: TID251
while True:
    messages = [m for m in consumer.consume(200, 0.5) if not m.error()]
    for m in messages:
        time.sleep(0.002)  # the work
        producer.produce(OUT, invoice(m.value()), m.key(), on_delivery=check)
    producer.flush()
