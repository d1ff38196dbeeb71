import json
import os

from confluent_kafka import Consumer, KafkaException, Producer

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


consumer = Consumer({**BASE, **GROUP, "enable.auto.commit": False})
producer = Producer({**BASE, "retries": 0, "message.timeout.ms": 2000})
consumer.subscribe([IN])


def delivered(error, message):
    if error:  # our own retry: at the end of the queue
        producer.produce(OUT, message.value(), message.key(), on_delivery=delivered)


while True:
    messages = [m for m in consumer.consume(100, 0.5) if not m.error()]
    for m in messages:
        producer.produce(OUT, invoice(m.value()), m.key(), on_delivery=delivered)
    while producer.flush(1):
        pass
    if messages:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            print("commit:", error, flush=True)
