import json
import os

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


consumer = Consumer({**BASE, **GROUP, "enable.auto.commit": False})


def connect():
    p = Producer({**BASE, "transactional.id": os.environ["KAFKA_TRANSACTIONAL_ID"]})
    p.init_transactions()
    return p


def rewind():
    for tp in consumer.committed(consumer.assignment(), timeout=30):
        consumer.seek(TopicPartition(tp.topic, tp.partition, tp.offset if tp.offset >= 0 else 0))


def offsets_of(messages):
    last = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
    return [TopicPartition(t, p, o) for (t, p), o in last.items()]


producer = connect()
consumer.subscribe([IN])
while True:
    messages = [m for m in consumer.consume(100, 0.5) if not m.error()]
    if not messages:
        continue
    try:
        producer.begin_transaction()
        for m in messages:
            producer.produce(OUT, invoice(m.value()), m.key())
        producer.send_offsets_to_transaction(
            offsets_of(messages), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
    except KafkaException as error:
        print("transaction:", error, flush=True)
        try:
            producer.abort_transaction()
        except KafkaException:
            producer = connect()
        while True:
            try:
                rewind()
                break
            except KafkaException as again:
                print("rewind:", again, flush=True)
