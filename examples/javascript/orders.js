const { Kafka, logLevel } = require("kafkajs");
const assert = require("node:assert");

const token = { Authorization: "Bearer " + (process.env.HIGHWATER_CONTROL_TOKEN ?? "") };
async function control(method, path, body) {
  const url = (process.env.CONTROL ?? "http://127.0.0.1:9990") + "/v1" + path;
  const answer = await fetch(url, { method, headers: token, body: body && JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error.message);
  return told;
}

(async () => {
  await control("POST", "/topics", { name: "orders", partitions: 1 });
  const history = "/history/" + (await control("POST", "/history", {})).history;
  const kafka = new Kafka({ brokers: (await control("GET", "/status")).bootstrap.split(","), logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ transactionalId: "shop", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const transaction = await producer.transaction();
  const values = Array.from({ length: 200 }, (_, number) => `order ${number}`);
  const error = "NOT_LEADER_OR_FOLLOWER"; // for the first request
  const denied = await control("POST", "/faults", { name: "answer", api: "Produce", error });
  let killed;
  for (const [number, value] of values.entries()) {
    if (number == 100) killed = control("POST", "/faults", { name: "kill", target: "leader of orders-0" }); // and goes on
    await transaction.send({ topic: "orders", messages: [{ value }] });
  }
  await control("DELETE", `/faults/${(await killed).id}`); // starts it again
  await control("DELETE", `/faults/${denied.id}`); // fails where no request has met it
  await control("POST", "/faults", { name: "hold", api: "EndTxn", for: 1 });
  await transaction.commit(); // takes a second
  await control("POST", history + "/claims", { topic: "orders", does: "acknowledged", values });
  const verdict = await control("POST", history + "/check", { topic: "orders" });
  assert.deepStrictEqual([verdict.story, verdict.read], ["", 200]);
  console.log(`javascript: ${verdict.read} read of ${verdict.acknowledged} acknowledged, no violation`);
  await producer.disconnect();
})();
