import asyncio
import json
import os
import random

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

IN, OUT = os.environ["HIGHWATER_INPUT"], os.environ["HIGHWATER_OUTPUT"]
BASE = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
GROUP = {"group.id": os.environ["KAFKA_GROUP_ID"], "auto.offset.reset": "earliest"}


def invoice(value: bytes) -> bytes:
    return json.dumps({"order_id": json.loads(value)["order_id"], "total": 1}).encode()


async def handle(producer, m):
    await asyncio.sleep(random.uniform(0, 0.05))  # a call to another service
    await producer.send_and_wait(OUT, invoice(m.value), key=m.key)


async def main():
    servers = BASE["bootstrap.servers"]
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    consumer = AIOKafkaConsumer(
        IN, bootstrap_servers=servers, group_id=GROUP["group.id"], auto_offset_reset="earliest"
    )
    await producer.start()
    await consumer.start()
    tasks = set()
    async for m in consumer:
        task = asyncio.create_task(handle(producer, m))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(main())
