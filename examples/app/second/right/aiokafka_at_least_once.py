import asyncio
import json
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


async def main():
    servers = BASE["bootstrap.servers"]
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    consumer = AIOKafkaConsumer(
        IN,
        bootstrap_servers=servers,
        group_id=GROUP["group.id"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await producer.start()
    await consumer.start()
    while True:
        polled = await consumer.getmany(timeout_ms=500)
        futures = [
            await producer.send(OUT, invoice(m.value), key=m.key)
            for batch in polled.values()
            for m in batch
        ]
        if futures:
            await asyncio.gather(*futures)
            try:
                await consumer.commit()
            except KafkaError as error:
                print("commit:", error, flush=True)


asyncio.run(main())
