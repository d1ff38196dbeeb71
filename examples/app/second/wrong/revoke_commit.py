import json
import os

from confluent_kafka import Consumer, KafkaException, Producer

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
pending = []


def on_revoke(c, partitions):
    pending.clear()  # no longer ours
    try:
        c.commit(offsets=c.position(partitions), asynchronous=False)
    except KafkaException as error:
        print("commit at revoke:", error, flush=True)


consumer.subscribe([IN], on_revoke=on_revoke)
while True:
    m = consumer.poll(0.5)
    if m is not None and not m.error():
        pending.append(m)
    if len(pending) >= 100:
        for p in pending:
            producer.produce(OUT, invoice(p.value()), p.key(), on_delivery=check)
        producer.flush()
        pending.clear()
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            print("commit:", error, flush=True)
