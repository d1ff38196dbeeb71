// Wrong: an order is committed before its invoice is stored; a death between the two loses it.
const { Kafka, logLevel } = require('kafkajs')

const { KAFKA_BOOTSTRAP_SERVERS, KAFKA_GROUP_ID, HIGHWATER_INPUT, HIGHWATER_OUTPUT } = process.env
const kafka = new Kafka({ brokers: KAFKA_BOOTSTRAP_SERVERS.split(','), logLevel: logLevel.NOTHING })
const orders = kafka.consumer({ groupId: KAFKA_GROUP_ID })
const invoices = kafka.producer()

async function main() {
  await invoices.connect()
  await orders.connect()
  await orders.subscribe({ topics: [HIGHWATER_INPUT], fromBeginning: true })
  orders.on(orders.events.CRASH, ({ payload }) => {
    console.error(payload.error)
    process.exit(1)
  })
  await orders.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const messages = batch.messages.map(({ key, value }) => ({ key, value }))
      const offset = String(BigInt(batch.lastOffset()) + 1n)
      await orders.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset }])
      await invoices.send({ topic: HIGHWATER_OUTPUT, messages })
    },
  })
}

main()
