import json
import os
from urllib.request import Request, urlopen

from confluent_kafka import Producer


def control(method, path, body=None):
    token = {"Authorization": "Bearer " + os.environ.get("HIGHWATER_CONTROL_TOKEN", "")}
    url = os.environ.get("CONTROL", "http://127.0.0.1:9990") + "/v1" + path
    with urlopen(Request(url, json.dumps(body or {}).encode(), token, method=method)) as answer:
        return json.load(answer)


acknowledged = []


def kept(error, record):
    if error is None:
        acknowledged.append(record.value().decode())


control("POST", "/topics", {"name": "orders", "partitions": 1})
history = f"/history/{control('POST', '/history')['history']}"
brokers = control("GET", "/status")["bootstrap"]
producer = Producer({"bootstrap.servers": brokers, "transactional.id": "shop"})
producer.init_transactions()
producer.begin_transaction()
denied = {"name": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}
denied = control("POST", "/faults", denied)  # the first request gets this error
for number in range(200):
    producer.produce("orders", f"order {number}", on_delivery=kept)
    if number == 100:  # the leader dies with records on their way
        killed = control("POST", "/faults", {"name": "kill", "target": "leader of orders-0"})
producer.flush()
control("DELETE", f"/faults/{killed['id']}")  # starts it again
control("DELETE", f"/faults/{denied['id']}")  # fails where no request has met it
control("POST", "/faults", {"name": "hold", "api": "EndTxn", "for": 1})
producer.commit_transaction()  # takes a second
claim = {"topic": "orders", "does": "acknowledged", "values": acknowledged}
control("POST", f"{history}/claims", claim)
verdict = control("POST", f"{history}/check", {"topic": "orders"})
assert (verdict["story"], verdict["read"], len(acknowledged)) == ("", 200, 200), verdict
print("python:", verdict["read"], "read of", verdict["acknowledged"], "acknowledged, no violation")
