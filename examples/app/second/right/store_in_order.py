import json
import os

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}
OWN = {"enable.auto.offset.store": False, "auto.commit.interval.ms": 500}

consumer = Consumer({**BASE, **GROUP, **OWN})
producer = Producer({**BASE, "enable.idempotence": True})
open_offsets: dict[int, list[int]] = {}  # by partition: read, and not yet written


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


def forget(c, partitions):  # what is still on its way is written twice then, and not lost
    open_offsets.clear()


def written(partition, offset):
    def delivered(error, _):
        if error:
            raise SystemExit(f"not written: {error}")
        waiting = open_offsets.get(partition, [])
        if offset in waiting:
            first = waiting[0]
            waiting.remove(offset)
            if offset == first:
                upto = waiting[0] if waiting else offset + 1
                try:
                    consumer.store_offsets(offsets=[TopicPartition(IN, partition, upto)])
                except KafkaException as late:
                    print("store:", late, flush=True)

    return delivered


consumer.subscribe([IN], on_revoke=forget, on_lost=forget)
while True:
    m = consumer.poll(0.1)
    producer.poll(0)
    if m is not None and not m.error():
        open_offsets.setdefault(m.partition(), []).append(m.offset())
        done = written(m.partition(), m.offset())
        producer.produce(OUT, invoice(m.value()), m.key(), on_delivery=done)
