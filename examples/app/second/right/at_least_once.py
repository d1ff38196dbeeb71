import json
import os

from confluent_kafka import Consumer, KafkaException, Producer

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


consumer = Consumer({**BASE, **GROUP, "enable.auto.commit": False})
producer = Producer({**BASE, "enable.idempotence": True})
consumer.subscribe([IN])
failed = []
while True:
    messages = [m for m in consumer.consume(50, 0.5) if not m.error()]
    for m in messages:
        producer.produce(
            OUT, invoice(m.value()), m.key(), on_delivery=lambda e, _: e and failed.append(e)
        )
    producer.flush()
    if failed:
        raise SystemExit(f"not written: {failed[0]}")
    if messages:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:  # it is read again then
            print("commit:", error, flush=True)
