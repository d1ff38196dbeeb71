import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

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


def work(m):
    time.sleep(random.uniform(0, 0.005))  # a look-up
    producer.produce(
        OUT, invoice(m.value()), m.key(), on_delivery=lambda e, _: e and failed.append(e)
    )


with ThreadPoolExecutor(8) as pool:
    while True:
        messages = [m for m in consumer.consume(100, 0.5) if not m.error()]
        list(pool.map(work, messages))
        producer.flush()
        if failed:
            raise SystemExit(f"not written: {failed[0]}")
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                print("commit:", error, flush=True)
