// Right, where an invoice may be written twice: it is stored before its order is committed.
const { Kafka, logLevel } = require('kafkajs')

const { KAFKA_BOOTSTRAP_SERVERS, KAFKA_GROUP_ID, HIGHWATER_INPUT, HIGHWATER_OUTPUT } = process.env
const kafka = new Kafka({ brokers: KAFKA_BOOTSTRAP_SERVERS.split(','), logLevel: logLevel.NOTHING })
const orders = kafka.consumer({ groupId: KAFKA_GROUP_ID })
const invoices = kafka.producer()

async function main() {
  await invoices.connect()
  await orders.connect()
  await orders.subscribe({ topics: [HIGHWATER_INPUT], fromBeginning: true })
  orders.on(orders.events.CRASH, ({ payload }) => { // nothing was committed: a restart does it again
    console.error(payload.error)
    process.exit(1)
  })
  await orders.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat, commitOffsetsIfNecessary }) => {
      const byKey = new Map()
      for (const { key, value } of batch.messages) {
        if (!byKey.has(`${key}`)) byKey.set(`${key}`, [])
        byKey.get(`${key}`).push({ key, value })
      }
      // key by key: kafkajs 2.2.4 loses records of a send to several brokers when a leader changes (tulios/kafkajs#1005)
      for (const messages of byKey.values()) {
        await invoices.send({ topic: HIGHWATER_OUTPUT, messages }) // acks=all
        await heartbeat() // throws when the group rebalances: else the others wait for this member until its batches end
      }
      const partitions = [{ partition: batch.partition, offset: String(BigInt(batch.lastOffset()) + 1n) }]
      // once: orders.commitOffsets would ask a coordinator that has moved again and again, for ten seconds
      await commitOffsetsIfNecessary({ topics: [{ topic: batch.topic, partitions }] })
    },
  })
}

main()
