import json
import os

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


servers = BASE["bootstrap.servers"].split(",")
consumer = KafkaConsumer(
    IN,
    bootstrap_servers=servers,
    group_id=GROUP["group.id"],
    auto_offset_reset="earliest",
    enable_auto_commit=False,
)
producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
while True:
    polled = consumer.poll(timeout_ms=500)
    futures = [
        producer.send(OUT, invoice(m.value), key=m.key) for batch in polled.values() for m in batch
    ]
    for future in futures:
        future.get(timeout=120)
    if futures:
        try:
            consumer.commit()
        except KafkaError as error:
            print("commit:", error, flush=True)
