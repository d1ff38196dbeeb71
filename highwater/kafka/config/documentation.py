"""What each property is for, in one sentence, for clients that ask DescribeConfigs (KIP-569).

`BROKER` and `TOPIC` are by name, in the order of `Config` and of `broker.admin.topic_config`.
"""

from __future__ import annotations

from collections.abc import Mapping

BROKER: Mapping[str, str] = {
    "broker.id": "The broker's id, unique in the cluster.",
    "broker.id.generation.enable": "Whether a broker without an id may be given one.",
    "reserved.broker.max.id": "The highest id that can be configured.",
    "broker.rack": "The rack of the broker; replicas of a partition are spread over racks.",
    "log.dirs": "The directories that hold the logs, separated by commas.",
    "listeners": "The addresses to bind, as NAME://host:port, separated by commas.",
    "advertised.listeners": "The addresses that clients and brokers are told to connect to.",
    "listener.security.protocol.map": "The security protocol of each listener, as NAME:PROTOCOL.",
    "inter.broker.listener.name": "The listener over which brokers talk to each other.",
    "security.inter.broker.protocol": "The security protocol between brokers.",
    "control.plane.listener.name": "The listener for the controller's requests alone.",
    "inter.broker.protocol.version": "The version of the protocol between brokers.",
    "num.network.threads": "How many processors read requests and send answers, per listener.",
    "num.io.threads": "How many handlers process requests.",
    "background.threads": "How many threads do background work.",
    "num.recovery.threads.per.data.dir": "How many logs of a directory are loaded at a time.",
    "queued.max.requests": "How many requests may wait before no more are read.",
    "queued.max.request.bytes": "How many bytes of requests may wait; -1 for no limit.",
    "socket.send.buffer.bytes": "The send buffer of each socket; -1 for the system's default.",
    "socket.receive.buffer.bytes": (
        "The receive buffer of each socket; -1 for the system's default."
    ),
    "socket.request.max.bytes": "The largest request that is read, in bytes.",
    "socket.listen.backlog.size": "How many connections may wait to be accepted.",
    "max.connections": "How many connections the broker holds at most.",
    "max.connections.per.ip": "How many connections are accepted from one address.",
    "max.connections.per.ip.overrides": "Exceptions from max.connections.per.ip, as ADDRESS:COUNT.",
    "max.connection.creation.rate": "How many connections are accepted a second.",
    "connections.max.idle.ms": "After how many idle milliseconds a connection is closed.",
    "connection.failed.authentication.delay.ms": (
        "How many milliseconds a failed authentication waits for its answer."
    ),
    "request.timeout.ms": "How many milliseconds a broker waits for the answer to its request.",
    "zookeeper.connect": "ZooKeeper's servers, as host:port,host:port/path.",
    "zookeeper.session.timeout.ms": "The time-out of the ZooKeeper session, in milliseconds.",
    "zookeeper.connection.timeout.ms": (
        "How many milliseconds a broker tries to connect to ZooKeeper; the session time-out, "
        "if unset."
    ),
    "zookeeper.max.in.flight.requests": "How many requests to ZooKeeper may be unanswered.",
    "zookeeper.set.acl": "Whether znodes are made with ACLs.",
    "num.partitions": "How many partitions a topic has by default.",
    "default.replication.factor": "How many replicas a partition has by default.",
    "auto.create.topics.enable": "Whether a topic is created when a client first names it.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "min.insync.replicas": "How many replicas must be in sync for a write with acks=all.",
    "unclean.leader.election.enable": (
        "Whether a replica that is not in sync may become leader, at the price of lost records."
    ),
    "compression.type": "The compression of stored batches; `producer` keeps what was sent.",
    "message.max.bytes": "The largest record batch that is accepted, in bytes.",
    "log.segment.bytes": "The largest size of a segment, in bytes.",
    "log.roll.ms": "After how many milliseconds a new segment begins; log.roll.hours, if unset.",
    "log.roll.hours": "After how many hours a new segment begins.",
    "log.roll.jitter.ms": (
        "How many milliseconds at most are taken off log.roll.ms at random; "
        "log.roll.jitter.hours, if unset."
    ),
    "log.roll.jitter.hours": "How many hours at most are taken off log.roll.ms at random.",
    "log.retention.ms": (
        "How many milliseconds records are kept, -1 for ever; log.retention.minutes, if unset."
    ),
    "log.retention.minutes": "How many minutes records are kept; log.retention.hours, if unset.",
    "log.retention.hours": "How many hours records are kept; -1 for ever.",
    "log.retention.bytes": "How large a partition's log may grow, in bytes; -1 for no limit.",
    "log.retention.check.interval.ms": "How often old segments are looked for, in milliseconds.",
    "log.initial.task.delay.ms": (
        "How many milliseconds after the start the logs' first checks begin."
    ),
    "log.local.retention.ms": "How long segments stay here with tiered storage, in milliseconds.",
    "log.local.retention.bytes": "How many bytes stay here with tiered storage.",
    "log.cleanup.policy": "What becomes of old records: `delete`, `compact`, or both.",
    "log.cleaner.enable": "Whether compacted logs are cleaned.",
    "log.cleaner.threads": "How many logs are cleaned at a time.",
    "log.cleaner.backoff.ms": "How many milliseconds a cleaner rests if there is nothing to clean.",
    "log.cleaner.delete.retention.ms": (
        "How many milliseconds a tombstone stays once it is cleaned."
    ),
    "log.cleaner.min.compaction.lag.ms": "How many milliseconds a record is not compacted.",
    "log.cleaner.max.compaction.lag.ms": "After how many milliseconds a record must be compacted.",
    "log.cleaner.min.cleanable.ratio": "The part of a log that must be dirty for a cleaning.",
    "log.cleaner.dedupe.buffer.size": "The memory of all cleaners' maps of keys, in bytes.",
    "log.cleaner.io.buffer.size": "The memory of all cleaners' buffers, in bytes.",
    "log.cleaner.io.buffer.load.factor": (
        "How full a cleaner's map of keys may become, from 0 to 1."
    ),
    "log.cleaner.io.max.bytes.per.second": "How many bytes a second all cleaners read and write.",
    "log.index.interval.bytes": "How many bytes of a log lie between two entries of its index.",
    "log.index.size.max.bytes": "The largest size of an index, in bytes.",
    "log.preallocate": "Whether a new segment's file is made in its full size.",
    "log.flush.interval.messages": "After how many records a log is flushed to disk.",
    "log.flush.interval.ms": (
        "After how many milliseconds records are flushed to disk; "
        "log.flush.scheduler.interval.ms, if unset."
    ),
    "log.flush.scheduler.interval.ms": (
        "How often logs to be flushed are looked for, in milliseconds."
    ),
    "log.flush.offset.checkpoint.interval.ms": (
        "How often the recovery points are written, in milliseconds."
    ),
    "log.flush.start.offset.checkpoint.interval.ms": (
        "How often the log start offsets are written, in milliseconds."
    ),
    "log.segment.delete.delay.ms": "How many milliseconds a deleted file stays on the disk.",
    "log.dir.failure.timeout.ms": (
        "How many milliseconds a broker may take to report a failed directory (KRaft)."
    ),
    "log.message.format.version": "The version of the record format; without effect since 3.0.",
    "log.message.timestamp.type": "Whose time a record has: CreateTime or LogAppendTime.",
    "log.message.timestamp.difference.max.ms": (
        "How many milliseconds a record's time may differ from the broker's."
    ),
    "log.message.timestamp.before.max.ms": (
        "How many milliseconds a record's time may lie before the broker's."
    ),
    "log.message.timestamp.after.max.ms": (
        "How many milliseconds a record's time may lie after the broker's."
    ),
    "log.message.downconversion.enable": "Whether records are converted for old consumers.",
    "compression.gzip.level": "The level of gzip; -1 for its default.",
    "compression.lz4.level": "The level of lz4.",
    "compression.zstd.level": "The level of zstd.",
    "replica.lag.time.max.ms": (
        "After how many milliseconds a follower that has not caught up leaves the ISR."
    ),
    "replica.fetch.wait.max.ms": "How many milliseconds a follower's fetch waits for data.",
    "replica.fetch.min.bytes": "How many bytes a follower's fetch waits for.",
    "replica.fetch.max.bytes": "How many bytes of a partition a follower asks for at once.",
    "replica.fetch.response.max.bytes": "How many bytes a follower asks for in one fetch.",
    "replica.fetch.backoff.ms": "How many milliseconds a fetcher waits after an error.",
    "num.replica.fetchers": "How many fetchers a broker has for each leader's broker.",
    "replica.high.watermark.checkpoint.interval.ms": (
        "How often high watermarks are written to disk, in milliseconds."
    ),
    "replica.socket.timeout.ms": "How many milliseconds a fetcher waits for an answer.",
    "replica.socket.receive.buffer.bytes": "The receive buffer of a fetcher's socket, in bytes.",
    "replica.selector.class": "The class that chooses the replica from which a consumer reads.",
    "auto.leader.rebalance.enable": "Whether leadership goes back to preferred replicas by itself.",
    "leader.imbalance.per.broker.percentage": (
        "How many percent of a broker's partitions may be led elsewhere before they go back."
    ),
    "leader.imbalance.check.interval.seconds": (
        "How often the controller looks for leaders to give back, in seconds."
    ),
    "unclean.leader.election.interval.ms": (
        "How often partitions to be elected uncleanly are looked for (KRaft), in milliseconds."
    ),
    "controller.socket.timeout.ms": "How many milliseconds the controller waits for an answer.",
    "controlled.shutdown.enable": "Whether a broker that stops hands over its leaders first.",
    "controlled.shutdown.max.retries": (
        "How often a broker that stops tries again to hand over its leaders."
    ),
    "controlled.shutdown.retry.backoff.ms": (
        "How many milliseconds a broker that stops waits before it tries again."
    ),
    "fetch.purgatory.purge.interval.requests": (
        "After how many requests finished fetches are removed from the purgatory."
    ),
    "producer.purgatory.purge.interval.requests": (
        "After how many requests finished produces are removed from the purgatory."
    ),
    "delete.records.purgatory.purge.interval.requests": (
        "After how many requests finished deletions are removed from the purgatory."
    ),
    "max.incremental.fetch.session.cache.slots": "How many fetch sessions a broker remembers.",
    "fetch.max.bytes": "How many bytes one fetch is given at most.",
    "group.initial.rebalance.delay.ms": (
        "How many milliseconds an empty group waits for more members before it is balanced."
    ),
    "group.min.session.timeout.ms": "The shortest session time-out of a member, in milliseconds.",
    "group.max.session.timeout.ms": "The longest session time-out of a member, in milliseconds.",
    "group.max.size": "How many members a group may have.",
    "offset.metadata.max.bytes": "The largest metadata of a committed offset, in bytes.",
    "offsets.commit.timeout.ms": "How many milliseconds a commit waits for its replicas.",
    "offsets.load.buffer.size": "How many bytes are read at once when offsets are loaded.",
    "offsets.retention.minutes": "How many minutes the offsets of an empty group are kept.",
    "offsets.retention.check.interval.ms": "How often old offsets are removed, in milliseconds.",
    "offsets.topic.num.partitions": "How many partitions __consumer_offsets has.",
    "offsets.topic.replication.factor": "How many replicas __consumer_offsets has.",
    "offsets.topic.segment.bytes": "The segment size of __consumer_offsets, in bytes.",
    "offsets.topic.compression.codec": "The compression of __consumer_offsets, by its number.",
    "transaction.state.log.num.partitions": "How many partitions __transaction_state has.",
    "transaction.state.log.replication.factor": "How many replicas __transaction_state has.",
    "transaction.state.log.min.isr": "How many replicas of __transaction_state must be in sync.",
    "transaction.state.log.segment.bytes": "The segment size of __transaction_state, in bytes.",
    "transaction.state.log.load.buffer.size": (
        "How many bytes are read at once when transactions are loaded."
    ),
    "transaction.max.timeout.ms": "The longest time-out of a transaction, in milliseconds.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "How often transactions that have timed out are looked for, in milliseconds."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "How often expired transactional ids are looked for, in milliseconds."
    ),
    "transaction.partition.verification.enable": (
        "Whether a leader asks the coordinator before a transaction's first append (KIP-890)."
    ),
    "transactional.id.expiration.ms": "How many milliseconds an unused transactional id is kept.",
    "producer.id.expiration.ms": "How many milliseconds a log remembers an idle producer.",
    "producer.id.expiration.check.interval.ms": (
        "How often expired producers are looked for, in milliseconds."
    ),
    "quota.window.num": "How many samples a client's quota is measured over.",
    "quota.window.size.seconds": "How long each sample of a client's quota is, in seconds.",
    "controller.quota.window.num": "How many samples a quota of controller mutations has.",
    "controller.quota.window.size.seconds": (
        "How long each sample of a quota of controller mutations is, in seconds."
    ),
    "replication.quota.window.num": "How many samples a replication throttle has.",
    "replication.quota.window.size.seconds": (
        "How long each sample of a replication throttle is, in seconds."
    ),
    "alter.log.dirs.replication.quota.window.num": (
        "How many samples the throttle of moves between log directories has."
    ),
    "alter.log.dirs.replication.quota.window.size.seconds": (
        "How long each sample of the throttle of moves between log directories is, in seconds."
    ),
    "highwater.broker.probe.ms": (
        "How many milliseconds the controller waits for a suspected broker to accept a connection."
    ),
    "highwater.metrics.port": "The port of metrics, health and traces; -1 for none.",
    "highwater.metrics.host": (
        "The address that highwater.metrics.port binds; the first listener's, if unset."
    ),
    "highwater.metrics.dialect": "How metrics are named: `confluent` or `jmx-exporter`.",
}

TOPIC: Mapping[str, str] = {
    "cleanup.policy": "What becomes of old records: `delete`, `compact`, or both.",
    "compression.gzip.level": "The level of gzip; -1 for its default.",
    "compression.lz4.level": "The level of lz4.",
    "compression.type": "The compression of stored batches; `producer` keeps what was sent.",
    "compression.zstd.level": "The level of zstd.",
    "delete.retention.ms": "How many milliseconds a tombstone stays once it is cleaned.",
    "file.delete.delay.ms": "How many milliseconds a deleted file stays on the disk.",
    "flush.messages": "After how many records the log is flushed to disk.",
    "flush.ms": "After how many milliseconds records are flushed to disk.",
    "follower.replication.throttled.replicas": (
        "The replicas whose fetches are throttled, as partition:broker pairs, or * for all."
    ),
    "index.interval.bytes": "How many bytes of the log lie between two entries of its index.",
    "leader.replication.throttled.replicas": (
        "The replicas whose fetches their leader throttles, as partition:broker pairs, or * "
        "for all."
    ),
    "local.retention.bytes": "How many bytes stay here with tiered storage.",
    "local.retention.ms": "How long segments stay here with tiered storage, in milliseconds.",
    "max.compaction.lag.ms": "After how many milliseconds a record must be compacted.",
    "max.message.bytes": "The largest record batch that is accepted, in bytes.",
    "message.downconversion.enable": "Whether records are converted for old consumers.",
    "message.format.version": "The version of the record format; without effect since 3.0.",
    "message.timestamp.after.max.ms": (
        "How many milliseconds a record's time may lie after the broker's."
    ),
    "message.timestamp.before.max.ms": (
        "How many milliseconds a record's time may lie before the broker's."
    ),
    "message.timestamp.difference.max.ms": (
        "How many milliseconds a record's time may differ from the broker's."
    ),
    "message.timestamp.type": "Whose time a record has: CreateTime or LogAppendTime.",
    "min.cleanable.dirty.ratio": "The part of the log that must be dirty for a cleaning.",
    "min.compaction.lag.ms": "How many milliseconds a record is not compacted.",
    "min.insync.replicas": "How many replicas must be in sync for a write with acks=all.",
    "preallocate": "Whether a new segment's file is made in its full size.",
    "remote.log.copy.disable": "Whether tiered storage gets no more of the topic.",
    "remote.log.delete.on.disable": "Whether tiered data is deleted when it is turned off.",
    "remote.storage.enable": "Whether the topic uses tiered storage.",
    "retention.bytes": "How large a partition's log may grow, in bytes; -1 for no limit.",
    "retention.ms": "How many milliseconds records are kept; -1 for ever.",
    "segment.bytes": "The largest size of a segment, in bytes.",
    "segment.index.bytes": "The largest size of an index, in bytes.",
    "segment.jitter.ms": "How many milliseconds at most are taken off segment.ms at random.",
    "segment.ms": "After how many milliseconds a new segment begins.",
    "unclean.leader.election.enable": (
        "Whether a replica that is not in sync may become leader, at the price of lost records."
    ),
}
