// usage: node main.js SERVER TOPIC HISTORY work|lose|read
const {Kafka} = require('kafkajs')
const {History, recordedSend, recordedRun, fullRead} = require('./recorder')

async function main([server, topic, path, step]) {
  const kafka = new Kafka({brokers: [server], logLevel: 1})
  const history = new History(path, `js-${step}`)
  if (step === 'read') return fullRead(history, kafka, [topic])
  const producer = kafka.producer()
  await producer.connect()
  if (step === 'lose') {
    await recordedSend(history, producer, topic, [{value: 'gone'}])
    return producer.disconnect()
  }
  const messages = [...Array(60).keys()].map((n) => ({key: `key ${n % 7}`, value: `value ${n}`}))
  await recordedSend(history, producer, topic, messages)
  await producer.disconnect()
  const consumer = kafka.consumer({groupId: topic})
  await consumer.connect()
  await consumer.subscribe({topics: [topic], fromBeginning: true})
  let count = 0
  await new Promise((resolve) => recordedRun(history, consumer, async () => { if (++count === 60) resolve() }))
  await consumer.disconnect()
}

main(process.argv.slice(2)).then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
