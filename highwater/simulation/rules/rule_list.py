"""The rules that only the simulation can check: of brokers' disks and memory.

The SQL files in spark/checks define the rules that clients can see (C, T, G and the rest of L), and
the simulation checks most of it as well.  docs/rules.md has both.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """`promise` holds at every moment; `source` is the place where Kafka says so."""

    id: str
    name: str
    promise: str
    source: str
    witness: str
    """Who vouches for it, and whether looking changes anything."""


RULES = (
    Rule(
        "R1",
        "strong ISR",
        "All that a leader counts as committed, the batches below its high watermark, stands "
        "on every member of the ISR that ZooKeeper has, byte for byte.",
        "KIP-497; Partition.maybeIncrementLeaderHW",
        "the disks, by a parser of the harness's own, and ZooKeeper's tree; of the broker only "
        "the high watermark",
    ),
    Rule(
        "R2",
        "leader in the ISR",
        "The leader that ZooKeeper names is a member of the ISR there, or there is none (-1);"
        " the ISR is a part of the assigned replicas. A reassignment ends when all of its target "
        "has been in the ISR, or where it began; the replicas from before it stay until then.",
        "LeaderAndIsr; PartitionStateMachine",
        "ZooKeeper's tree",
    ),
    Rule(
        "R3",
        "valid high watermark",
        "A high watermark is at least the log start offset of its own log, and at most the log end "
        "offset there, and on every member of the maximal ISR: the members there are, and those "
        "that a pending change would add. The high watermark and the log start that an answer of "
        "Fetch or ListOffsets bears, or that a fetch session leaves out as known, are those that "
        "the leader had while it was asked, and never above what was committed.",
        "KIP-497, KIP-207, KIP-227",
        "the disks and ZooKeeper's tree; the high watermark is the broker's word, held to the "
        "one that clients are told",
    ),
    Rule(
        "R4",
        "leader completeness",
        "Each elected leader holds every record that was acknowledged with acks=all. Unclean "
        "elections, and a leader that was alone when it lost its power, are set apart.",
        "KIP-101; Election",
        "ZooKeeper's tree, the disks, and the clients that were told of each record",
    ),
    Rule(
        "R5",
        "log matching",
        "Two replicas hold the same batches below the lower of their high watermarks, and "
        "everywhere once the cluster is whole. Compacted topics are compared by the records "
        "that survive.",
        "KIP-101, KIP-279",
        "the disks; of the broker only the high watermark",
    ),
    Rule(
        "R6",
        "what was read stays",
        "A record that a consumer was given is on every later leader at that offset.",
        "KIP-320",
        "what clients have read, and the disks",
    ),
    Rule(
        "R7",
        "epochs and cuts",
        "One broker leads in a leader epoch, and epochs never fall. A replica's high "
        "watermark falls only by a restart, or by a cut to the new end of its log; and no replica "
        "cuts off what was committed.",
        "KIP-101, KIP-279",
        "ZooKeeper's tree, the disks, and every broker's view beside the others'",
    ),
    Rule(
        "R8",
        "epoch cache, producers and timestamps",
        "Entries rise in epoch and in offset; each stands where the log has the first batch "
        "of its epoch; a leader writes its own before its first append. Where a log was cut or "
        "a term began, the largest timestamp of its last segment is known, too, and of each "
        "producer the epoch, the last sequence and the open transaction, as the log has them.",
        "KIP-101, KIP-279; LeaderEpochFileCache, LogSegment.truncateTo, ProducerStateManager",
        "the disks; the broker's memory is looked at, and no index is loaded for it",
    ),
    Rule(
        "R9",
        "who joins, and when the mark moves",
        "A follower joins the ISR at or above the high watermark and the start of the "
        "leader's epoch. With fewer than min.insync.replicas members the high watermark "
        "stands still.",
        "KIP-207, KIP-966; Partition.maybeExpandIsr",
        "ZooKeeper's tree and the disks",
    ),
    Rule(
        "R10",
        "control plane",
        "The controller epoch rises by one with each move, and survives a restart of "
        "everything. A request with an older controller, leader or broker epoch is refused.",
        "KIP-320, KIP-380; KafkaController",
        "ZooKeeper's tree, and the answers to old requests that the harness keeps or invents: "
        "these are faults of their own",
    ),
    Rule(
        "R11",
        "checkpoint",
        "After a restart a high watermark is at or above the last one that was written down, and "
        "that is no less than what it was for the last three seconds of the life before.",
        "ReplicaManager.checkpointHighWatermarks",
        "the checkpoint that the disk had when the broker last died, and of that the high "
        "watermarks that it was seen to have",
    ),
    Rule(
        "R12",
        "the broker's own assertions and mistakes",
        "No assertion of a broker fails: those of the invariants 2 to 7 of ARCHITECTURE.md, and "
        "any other. Mutants are searched for without them (`python -O`), so that the checks from "
        "outside have to find each. No broker logs an exception that only a mistake of its own "
        "raises (`AttributeError`, `TypeError`, `LookupError`, ...), whoever is answered, or the "
        "same warning 50 times within a second. A client can read every answer, and an answer that "
        "is kept for the next one to ask (Metadata) is the one that would be made anew.",
        "the invariants 2 to 7 of ARCHITECTURE.md",
        "the broker's log and its death; the bytes of its answers; what it keeps for answers is "
        "made anew beside it, and put back",
    ),
    Rule(
        "R13",
        "an error of the disk",
        "A broker that met an error of a log directory, or found it full, takes that one offline "
        "within three seconds of running. It halts where that was the last; with another it goes "
        "on, and within three seconds without a fault others lead what was in the lost one. "
        "Nothing that was acknowledged rests on what it could not write. After an orderly stop "
        "all of its logs are on the disk.",
        "KIP-112; ReplicaManager.handleLogDirFailure",
        "the disk that gave the error, ZooKeeper's tree, and the disk after a power loss",
    ),
    Rule(
        "R14",
        "nothing changes at rest",
        "Where a leader's fetches skip a partition for a follower, the follower has all of "
        "the log, is in the ISR, and knows HW, LSO and log start.",
        "none of Kafka's, which has no such rest: `broker/replica/feed.py`",
        "the follower's log, and what the leader knows",
    ),
    Rule(
        "R15",
        "topic ids",
        "A topic's id is given once, and never changes while its znode lives; no topic gets one "
        "that another had. At rest each log, its partition.metadata and Metadata have it.",
        "KIP-516",
        "ZooKeeper's tree, and the disks",
    ),
    Rule(
        "G5",
        "a consumer group comes to rest",
        "The epochs of a group of the consumer protocol and of its members never fall. A member is "
        "not put out that was heard within its session and has given up in time what it had to. "
        "Within 12 s from when all is well, and from when a member crashes then, every partition "
        "of a subscribed topic has one owner, and the members own what ConsumerGroupDescribe "
        "shows.",
        "KIP-848",
        "what members were told and have said, the harness's clock, and ZooKeeper's tree for the "
        "coordinator; a description changes nothing",
    ),
    Rule(
        "S5",
        "a share group keeps its bounds, and comes to its end",
        "The start offset of a share-partition never falls at its leader. Nothing is acquired "
        "above the high watermark, or under read_committed above the last stable offset, and no "
        "more records are in flight than "
        "group.share.partition.max.record.locks, but for the rest of a batch. Within 30 s from "
        "when all is well and nobody writes any more, its members have taken everything: "
        "DescribeShareGroupOffsets shows no lag.",
        "KIP-932",
        "the leader's machine after each step, beside its high watermark and last stable offset; "
        "the group coordinator's answers",
    ),
    Rule(
        "T1",
        "reads of one's own",
        "A transaction does not read, under read_committed, the records that it has sent itself.",
        "KIP-98",
        "the client inside the transaction",
    ),
    Rule(
        "L2",
        "health",
        "No broker dies by itself, and once all faults are healed every partition has its "
        "full ISR, every broker's metadata agrees with ZooKeeper, and nothing is left in hand: no "
        "request waits for what is not to come, no file that is gone stays open, none is left that "
        "nobody is going to delete or that retention is due for; no broker remembers more fetch "
        "sessions than max.incremental.fetch.session.cache.slots; the high watermarks are "
        "written down, and the largest timestamp of every segment is known. Producers and open "
        "transactions, groups' offsets and the states of transactions are in memory as a replay of "
        "their logs makes them, and no group is left dead. "
        "No deleted segment was closed before file.delete.delay.ms was over.",
        "none of Kafka's: what a healed cluster is for",
        "ZooKeeper's tree, the disks, a replay of the logs, each broker's memory beside its "
        "leader's or follower's; what a broker applies is compared with the tree without asking "
        "the broker, as its answer would apply what it reads",
    ),
    Rule(
        "L5",
        "control latency",
        "A LeaderAndIsr is applied within a second of virtual time, however full the data channel"
        " is.",
        "KIP-291",
        "the harness's clock, and a request of its own",
    ),
    Rule(
        "L6",
        "nothing is late",
        "While all is well (every broker registered, every ISR full, no fault under way, and none "
        "of this and no controller has changed for 8 s) no ISR shrinks, and whatever waits ends in "
        "time: a client's request within 0.8 s, a Produce and a Fetch within 0.1 s of the commit "
        "that they wait for; within 1 s what was appended is committed, and followers have the "
        "high watermark and log start that their leader had; within 1.5 s a member of a group has "
        "its assignment, from its first JoinGroup on or from when all members can be heard; within "
        "2 s a decided transaction has its markers; within 3 s each broker knows a partition's "
        "state. A long poll without news may wait, a JoinGroup and a SyncGroup for members that "
        "say nothing, and so may what concerns a partition whose leader or replicas have changed "
        "within 1.5 s.",
        "none of Kafka's: a time-out is no answer where nothing is wrong",
        "the harness's clock, its clients, ZooKeeper's tree, and each leader's memory a moment "
        "ago; nobody is asked",
    ),
)
