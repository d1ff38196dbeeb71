import json
import os

from kafka import KafkaConsumer, KafkaProducer

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
    auto_commit_interval_ms=500,
)
producer = KafkaProducer(bootstrap_servers=servers, linger_ms=200)
for m in consumer:
    producer.send(OUT, invoice(m.value), key=m.key)  # nobody looks at the future
