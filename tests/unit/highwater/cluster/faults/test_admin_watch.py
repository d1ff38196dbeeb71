"""A witness by brokers' answers: whose answer counts, and what it makes of them."""

from __future__ import annotations

from typing import Any

from highwater.cluster.faults.admin_watch import AdminWitness
from highwater.cluster.faults.witness import PartitionState
from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import messages

TP = TopicPartition("t", 0)
Answer = messages.MetadataResponse
Quorum = messages.DescribeQuorumResponse.TopicData


def witness() -> AdminWitness:
    return AdminWitness({n: ("127.0.0.1", n) for n in (1, 2, 3)})


def metadata(
    leader: int, epoch: int, isr: list[int], *, controller: int = 1, error: int = 0
) -> Any:
    partition = Answer.MetadataResponseTopic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=leader, leader_epoch=epoch,
        replica_nodes=[1, 2, 3], isr_nodes=isr, offline_replicas=[],
    )  # fmt: skip
    topic = Answer.MetadataResponseTopic(
        error_code=error, name="t", partitions=[] if error else [partition]
    )
    brokers = [Answer.MetadataResponseBroker(node_id=n, host="", port=n) for n in (1, 2, 3)]
    return Answer(brokers=brokers, controller_id=controller, topics=[topic])


def quorum(leader: int, epoch: int, ends: dict[int, int]) -> Any:
    voters = [
        Quorum.PartitionData.ReplicaState(replica_id=n, log_end_offset=end)
        for n, end in ends.items()
    ]
    partition = Quorum.PartitionData(
        error_code=0, leader_id=leader, leader_epoch=epoch, current_voters=voters, observers=[]
    )
    topic = Quorum(topic_name="__cluster_metadata", partitions=[partition])
    return messages.DescribeQuorumResponse(error_code=0, topics=[topic])


def test_the_quorums_leader_is_the_controller_and_its_epoch_counts_the_moves() -> None:
    seen = witness()
    seen.take_quorum(quorum(2, 5, {1: 10, 2: 10, 3: 10}))
    assert (seen.controller, seen.controller_epoch, seen.seen["controller_moves"]) == (2, 5, 0)
    seen.take_quorum(quorum(3, 7, {1: 12, 3: 12}))
    assert (seen.controller, seen.controller_epoch, seen.seen["controller_moves"]) == (3, 7, 2)
    seen.take_quorum(quorum(2, 5, {1: 10, 2: 99, 3: 10}))
    assert seen.controller == 3, "a leader that has lost its office was believed"
    assert seen.controller_epochs == [], "it could not see an epoch fall, so it must not claim to"


def test_of_one_leader_epoch_the_answer_of_the_broker_that_knows_most_counts() -> None:
    seen = witness()
    seen.take_metadata(1, metadata(1, 4, [1, 2, 3]), True)
    seen.take_quorum(quorum(2, 5, {1: 10, 2: 20, 3: 10}))
    seen.take_metadata(2, metadata(1, 4, [1, 2]), True)
    seen.take_metadata(3, metadata(1, 4, [1, 2, 3]), True)  # it is cut off, and knows no better
    assert seen.partitions[TP] == PartitionState(1, 4, (1, 2), 5)
    assert seen.seen["isr_shrinks"] == 1
    assert not seen.seen["isr_expands"]


def test_a_new_leader_epoch_counts_whoever_tells_it_and_an_older_one_never() -> None:
    seen = witness()
    seen.take_quorum(quorum(2, 5, {1: 10, 2: 20, 3: 10}))
    seen.take_metadata(2, metadata(1, 4, [1, 2, 3]), True)
    seen.take_metadata(3, metadata(3, 5, [3, 2]), True)
    seen.take_metadata(2, metadata(1, 4, [1, 2, 3]), True)
    assert seen.partitions[TP].leader == 3
    assert list(seen.led_by(3)) == [TP]


def test_without_a_quorum_the_controller_is_the_broker_that_takes_itself_for_it() -> None:
    seen = witness()
    seen.take_metadata(1, metadata(1, 0, [1], controller=2), False)
    assert [seen.controller] == [None]
    seen.take_metadata(2, metadata(1, 0, [1], controller=2), False)
    seen.take_metadata(3, metadata(1, 0, [1], controller=3), False)
    assert (seen.controller, seen.seen["controller_moves"]) == (3, 1)


def test_a_deleted_topic_is_forgotten() -> None:
    seen = witness()
    seen.take_metadata(1, metadata(1, 0, [1]), True)
    gone = metadata(1, 0, [1], error=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    seen.take_metadata(1, gone, True)
    assert not seen.partitions
    assert not seen.replicas
