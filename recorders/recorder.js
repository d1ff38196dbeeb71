// Wraps a producer and a consumer of kafkajs, and writes docs/history.md.  Copy this file.
//
//   const {History, recordedSend, recordedRun, fullRead} = require('./recorder')
//   const history = new History('my-run/history.jsonl', 'worker-1')
//   await recordedSend(history, producer, 'orders', [{key: 'ada', value: 'order 17'}])
//   await recordedRun(history, consumer, async ({topic, partition, message}) => { ... })   // instead of consumer.run
//   await fullRead(history, kafka, ['orders'])                                             // when all are done
const fs = require('fs')

class History {
  constructor(path, name) {
    this.file = fs.openSync(path, 'a')
    this.name = name
    this.last = 0n
    this.count = Math.floor(Math.random() * 2 ** 20) * 2 ** 32
    this.epoch = BigInt(Date.now()) * 1000000n - process.hrtime.bigint()
  }

  op() { return ++this.count }

  line(f, type, fields) {
    const now = this.epoch + process.hrtime.bigint()
    this.last = now > this.last ? now : this.last + 1n
    const line = JSON.stringify({process: this.name, client: 'kafkajs', f, type, ...fields})
    fs.writeSync(this.file, `{"index":${this.last},"t_ns":${this.last},${line.slice(1)}\n`)
  }
}

const text = (data) => (data === null || data === undefined ? undefined : data.toString())

// One request for each message, so that each has an offset of its own in the answer.  kafkajs tries again by itself, so an
// error proves nothing (info).
async function recordedSend(history, producer, topic, messages, {acks = -1, idempotent = false} = {}) {
  await Promise.all(messages.map(async (message) => {
    const send = {op: history.op(), topic, key: text(message.key), value: text(message.value), acks, idempotent}
    history.line('send', 'invoke', {...send, partition: message.partition})
    try {
      const [{partition, baseOffset}] = await producer.send({topic, acks, messages: [message]})
      history.line('send', 'ok', {...send, partition, offset: Number(baseOffset ?? -1)})
    } catch (error) {
      history.line('send', 'info', {...send, error: error.type ?? error.name})
      throw error
    }
  }))
}

function recordedRun(history, consumer, eachMessage, phase = 'run') {
  consumer.on(consumer.events.GROUP_JOIN, ({payload}) => {
    for (const [topic, partitions] of Object.entries(payload.memberAssignment))
      for (const partition of partitions) history.line('assign', 'ok', {op: history.op(), topic, partition})
  })
  return consumer.run({
    eachMessage: async (given) => {
      const {topic, partition, message} = given
      const op = history.op()
      const place = {topic, partition, offset: Number(message.offset), key: text(message.key), value: text(message.value)}
      history.line('poll', 'ok', {op, poll_id: op, n: 1, phase, ...place})
      await eachMessage(given)
    },
  })
}

// Reads the topics from start to end, aborted records too (kafkajs: readUncommitted).
async function fullRead(history, kafka, topics) {
  const admin = kafka.admin()
  await admin.connect()
  const left = new Map()
  for (const topic of topics) {
    const read = (partition) => ({op: history.op(), topic, partition, phase: 'final'})
    const {topics: [{partitions}]} = await admin.fetchTopicMetadata({topics: [topic]})
    const reads = partitions.map(({partitionId}) => read(partitionId))
    for (const one of reads) history.line('full_read', 'invoke', one)
    for (const {partition, low, high} of await admin.fetchTopicOffsets(topic)) {
      const one = reads.find((r) => r.partition === partition)
      if (Number(low) === Number(high)) history.line('full_read', 'ok', {...one, offset: Number(high)})
      else left.set(`${topic}-${partition}`, {one, end: Number(high)})
    }
  }
  await admin.disconnect()
  const consumer = kafka.consumer({groupId: `full-read-${history.op()}`, readUncommitted: true})
  await consumer.connect()
  await consumer.subscribe({topics, fromBeginning: true})
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`not read to its end: ${[...left.keys()]}`)), 60000)
    const ended = () => { if (!left.size) { clearTimeout(late); resolve() } }
    consumer.on(consumer.events.END_BATCH_PROCESS, ({payload}) => {
      const place = `${payload.topic}-${payload.partition}`
      const found = left.get(place)
      if (found && Number(payload.lastOffset) >= found.end - 1) {
        history.line('full_read', 'ok', {...found.one, offset: found.end})
        left.delete(place)
      }
      ended()
    })
    recordedRun(history, consumer, async () => {}, 'final').then(ended, reject)
  })
  await consumer.disconnect()
}

module.exports = {History, recordedSend, recordedRun, fullRead}
