"""The controller's requests, elections, moves, producer ids, log directories, and ApiVersions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import trio

from highwater.broker.admin.producer_ids import ProducerIds
from highwater.broker.handlers import (
    HANDLERS,
    alter_partition_reassignments,
    api_versions,
    controlled_shutdown,
    describe_cluster,
    describe_log_dirs,
    elect_leaders,
    init_producer_id,
    leader_and_isr,
    list_partition_reassignments,
    stop_replica,
    update_metadata,
)
from highwater.broker.request.response import NoResponse, Response
from highwater.kafka import znodes
from highwater.kafka.errors import ErrorCode
from highwater.kafka.replica_assignment import ReplicaAssignment
from highwater.kafka.types import BrokerId, TopicPartition
from highwater.kafka.wire.controller_messages import (
    ControlledShutdownRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataRequest,
)
from highwater.kafka.wire.messages import (
    AlterPartitionReassignmentsRequest,
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    InitProducerIdRequest,
    ListPartitionReassignmentsRequest,
)
from tests.unit.broker.handlers.conftest import in_broker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = (ErrorCode.NONE, None)


def empty_update(controller_epoch: int, broker_epoch: int) -> Any:
    return UpdateMetadataRequest(
        controller_id=2, controller_epoch=controller_epoch, broker_epoch=broker_epoch,
        topic_states=[], ungrouped_partition_states=[], live_brokers=[],
    )  # fmt: skip


@in_broker()
async def test_update_metadata_fencing(b: Any) -> None:
    async def tell(controller_epoch: int, broker_epoch: int, version: int = 6) -> str:
        request = empty_update(controller_epoch, broker_epoch)
        found = await b.ask(update_metadata, version, request)
        return ErrorCode(found.error_code).name

    assert await tell(5, 10) == "NONE"
    generation = b.services.metadata.generation
    assert await tell(4, 10) == "STALE_CONTROLLER_EPOCH"
    assert await tell(6, 9) == "STALE_BROKER_EPOCH"
    assert b.services.fence.controller_epoch == 5
    assert b.services.metadata.generation == generation, "nothing was applied"
    assert await tell(6, 10) == "NONE"
    assert b.services.fence.controller_epoch == 6
    assert b.services.metadata.controller_id == 2
    assert await tell(5, 10) == "STALE_CONTROLLER_EPOCH"
    assert await tell(6, 11) == "NONE", "our own registration may not be known to us yet"
    assert await tell(6, -1) == "NONE"
    assert await tell(6, -1, version=4) == "NONE"


@in_broker()
async def test_what_a_controller_sent_over_a_connection_of_before_comes_too_late(b: Any) -> None:
    stop = StopReplicaRequest(
        controller_id=2, controller_epoch=6, broker_epoch=10, delete_partitions=True,
        topic_states=[],
    )  # fmt: skip
    become = LeaderAndIsrRequest(
        controller_id=2, controller_epoch=6, broker_epoch=10, topic_states=[],
        live_leaders=[],
    )  # fmt: skip

    async def take(module: ModuleType, request: Any, number: int) -> bool:
        ctx = b.context(module, module.API.versions[1], number)
        reply = await module.handle(ctx, request)
        assert isinstance(reply, Response) or reply == NoResponse(close=True)
        return isinstance(reply, Response)

    assert await take(update_metadata, empty_update(5, 10), 7)
    assert await take(update_metadata, empty_update(6, 10), 4), "another controller"
    assert await take(update_metadata, empty_update(6, 10), 4)
    assert await take(update_metadata, empty_update(5, 10), 8), "it is told why: its epoch"
    assert await take(leader_and_isr, become, 9)
    generation = b.services.metadata.generation
    for module, request in (
        (update_metadata, empty_update(6, 10)), (leader_and_isr, become), (stop_replica, stop),
    ):  # fmt: skip
        assert not await take(module, request, 4)
        assert await take(module, request, 9)
    assert b.services.metadata.generation == generation + 1


@in_broker()
async def test_what_waited_for_zookeeper_may_be_overtaken_meanwhile(b: Any) -> None:
    """A new topic's configuration is read before its partitions are made.  The controller has given
    up the connection and deleted the topic over another one: it must not be made after that."""
    state = LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1],
        partition_epoch=0, replicas=[1], adding_replicas=[], removing_replicas=[], is_new=True,
    )  # fmt: skip
    become = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=1, broker_epoch=10, live_leaders=[],
        ungrouped_partition_states=[],
        topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=[state])],
    )  # fmt: skip
    gone = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)
    stop = StopReplicaRequest(
        controller_id=1, controller_epoch=1, broker_epoch=10, delete_partitions=True,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[gone])],
    )  # fmt: skip

    await b.services.logs.load("the-cluster", 1)
    replies: dict[int, Any] = {}

    async def take(module: ModuleType, request: Any, number: int) -> None:
        ctx = b.context(module, module.API.versions[1], number)
        replies[number] = await module.handle(ctx, request)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, leader_and_isr, become, 4)
        await trio.sleep(0.0001)  # less than any way to ZooKeeper takes
        assert 4 not in replies, "it waits for ZooKeeper"
        await take(stop_replica, stop, 5)
        assert isinstance(replies[5], Response)
    assert replies[4] == NoResponse(close=True)
    assert TopicPartition("t", 0) not in b.services.replicas.partitions
    await take(leader_and_isr, become, 5)
    assert TopicPartition("t", 0) in b.services.replicas.partitions


@in_broker()
async def test_what_waited_for_its_turn_may_be_overtaken_meanwhile(b: Any) -> None:
    """While another request is being applied, one that comes in is judged when its turn comes."""
    become = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=1, broker_epoch=10, live_leaders=[],
        ungrouped_partition_states=[], topic_states=[],
    )  # fmt: skip

    replies: dict[int, Any] = {}

    async def take(module: ModuleType, request: Any, number: int) -> None:
        ctx = b.context(module, module.API.versions[1], number)
        replies[number] = await module.handle(ctx, request)

    turn = b.services.replicas._changing
    async with trio.open_nursery() as nursery, turn:
        nursery.start_soon(take, leader_and_isr, become, 4)
        while not turn.statistics().tasks_waiting:
            await trio.sleep(0.001)
        await take(update_metadata, empty_update(2, 10), 5)
    assert replies[4].message.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert isinstance(replies[5], Response)


@in_broker()
async def test_an_update_that_waited_for_its_turn_may_be_overtaken_meanwhile(b: Any) -> None:
    replies: dict[int, Any] = {}

    async def take(number: int) -> None:
        ctx = b.context(update_metadata, 6, number)
        replies[number] = await update_metadata.handle(ctx, empty_update(2, 10))

    generation = b.services.metadata.generation
    turn = b.services.metadata_lock
    async with trio.open_nursery() as nursery, turn:
        for waiting, number in enumerate((4, 5), 1):
            nursery.start_soon(take, number)
            while turn.statistics().tasks_waiting < waiting:
                await trio.sleep(0.001)
    assert replies[4] == NoResponse(close=True)
    assert isinstance(replies[5], Response)
    assert b.services.metadata.generation == generation + 1


@pytest.mark.parametrize("version", range(4))
@in_broker()
async def test_controlled_shutdown(b: Any, version: int) -> None:
    request = ControlledShutdownRequest(broker_id=3, broker_epoch=77)
    found = await b.ask(controlled_shutdown, version, request)
    partitions = [(p.topic_name, p.partition_index) for p in found.remaining_partitions]
    assert partitions == [("t", 0), ("t", 1)]
    assert b.controller.asked == [(3, 77 if version >= 2 else -1)]
    b.controller.active = False
    found = await b.ask(controlled_shutdown, version, request)
    assert found.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", range(3))
@in_broker()
async def test_elections_are_answered_when_the_metadata_shows_them(b: Any, version: int) -> None:
    await b.update_metadata({"t": {0: 2, 1: 2}})
    b.controller.elections = {T0: NONE, T1: (ErrorCode.ELECTION_NOT_NEEDED, "it leads")}
    asked = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 1])]
    answers = []

    async def elect(timeout_ms: int) -> None:
        request = ElectLeadersRequest(topic_partitions=asked, timeout_ms=timeout_ms)
        answers.append(await b.ask(elect_leaders, version, request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(elect, 1000)
        await trio.sleep(0.5)
        assert not answers
        await b.update_metadata({"t": {0: 1}})
    assert _results(answers[0]) == {T0: "NONE", T1: "ELECTION_NOT_NEEDED"}
    assert b.controller.asked == [([T0, T1], False)]
    await b.update_metadata({"t": {0: 3}})
    await elect(100)
    assert _results(answers[1]) == {T0: "REQUEST_TIMED_OUT", T1: "ELECTION_NOT_NEEDED"}
    b.controller.active = False
    await elect(100)
    assert _results(answers[2]) == {T0: "NOT_CONTROLLER", T1: "NOT_CONTROLLER"}
    if version >= 1:
        assert answers[2].error_code == ErrorCode.NOT_CONTROLLER


def _results(answer: Any) -> dict[TopicPartition, str]:
    return {
        TopicPartition(t.topic, p.partition_id): ErrorCode(p.error_code).name
        for t in answer.replica_election_results
        for p in t.partition_result
    }


@in_broker()
async def test_unclean_election_of_all_partitions(b: Any) -> None:
    await b.update_metadata({"t": {0: 2, 1: 2}})
    b.controller.elections = {T0: NONE, T1: (ErrorCode.ELECTION_NOT_NEEDED, None)}
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=100, election_type=1)
    assert _results(await b.ask(elect_leaders, 2, request)) == {T0: "NONE"}
    assert b.controller.asked == [([T0, T1], True)]
    request = ElectLeadersRequest(topic_partitions=[], timeout_ms=100, election_type=5)
    found = await b.ask(elect_leaders, 2, request)
    assert found.error_code == ErrorCode.INVALID_REQUEST


@in_broker()
async def test_reassignments(b: Any) -> None:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = topic.ReassignablePartition
    request = AlterPartitionReassignmentsRequest(
        topics=[
            topic(
                name="t",
                partitions=[
                    partition(partition_index=0, replicas=[2, 3]),
                    partition(partition_index=1, replicas=None),
                ],
            )
        ],
        timeout_ms=100,
    )
    found = await b.ask(alter_partition_reassignments, 0, request)
    assert [p.error_code for t in found.responses for p in t.partitions] == [0, 0]
    assert b.controller.asked == [({T0: [2, 3], T1: None},)]
    ids = tuple(BrokerId(i) for i in (2, 3, 1))
    b.controller.moves = {T0: ReplicaAssignment(ids, ids[1:2], ids[2:])}
    listing = ListPartitionReassignmentsRequest(topics=None, timeout_ms=1)
    found = await b.ask(list_partition_reassignments, 0, listing)
    move = found.topics[0].partitions[0]
    assert list(move.replicas) == [2, 3, 1]
    assert (list(move.adding_replicas), list(move.removing_replicas)) == ([3], [1])
    b.controller.active = False
    found = await b.ask(alter_partition_reassignments, 0, request)
    assert found.error_code == ErrorCode.NOT_CONTROLLER
    found = await b.ask(list_partition_reassignments, 0, listing)
    assert found.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", range(6))
@in_broker()
async def test_init_producer_id(b: Any, version: int) -> None:
    async def ask(**given: Any) -> tuple[str, int, int]:
        values: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1000}
        if version >= 3:
            values |= {"producer_id": -1, "producer_epoch": -1}
        request = InitProducerIdRequest(**(values | given))
        found = await b.ask(init_producer_id, version, request)
        return ErrorCode(found.error_code).name, found.producer_id, found.producer_epoch

    assert await ask() == ("NONE", 0, 0)
    assert await ask() == ("NONE", 1, 0)
    assert (await ask(transactional_id="x"))[0] == "NOT_COORDINATOR"
    assert (await ask(transactional_id=""))[0] == "INVALID_REQUEST"
    if version >= 3:
        assert (await ask(producer_id=5))[0] == "INVALID_REQUEST"
        assert await ask(producer_id=1, producer_epoch=0) == ("NONE", 2, 0)
    b.services.producer_ids = ProducerIds(BrokerId(1), lambda: b.services.zk)
    b.services.session = None
    assert (await ask())[0] == "COORDINATOR_LOAD_IN_PROGRESS"


@in_broker()
async def test_producer_ids_are_unique_among_brokers(b: Any) -> None:
    brokers = [ProducerIds(BrokerId(i), lambda: b.zk) for i in range(3)]
    given: list[int] = []

    async def take(ids: ProducerIds, n: int) -> None:
        given.extend([await ids.generate() for _ in range(n)])

    async with trio.open_nursery() as nursery:
        for ids in brokers:
            for _ in range(4):
                nursery.start_soon(take, ids, 600)
    assert len(given) == len(set(given)) == 7200
    data, _ = await b.zk.get(znodes.PRODUCER_ID_BLOCK)
    block = znodes.decode_producer_id_block(data)
    assert block is not None
    assert block.end == 8999, "three blocks each, of a thousand"


@pytest.mark.parametrize("version", range(5))
@in_broker()
async def test_log_dirs(b: Any, version: int) -> None:
    b.services.world.disk.make_dirs("/data")
    await b.services.logs.load("the-cluster", BrokerId(1))
    b.services.logs.get_or_create(T1, b.services.logs.default_config)
    b.services.logs.get_or_create(T0, b.services.logs.default_config)
    found = await b.ask(describe_log_dirs, version, DescribeLogDirsRequest(topics=None))
    assert [(r.log_dir, r.error_code) for r in found.results] == [("/data", 0)]
    partitions = found.results[0].topics[0].partitions
    assert [(p.partition_index, p.partition_size, p.offset_lag) for p in partitions] == [
        (0, 0, 0), (1, 0, 0),
    ]  # fmt: skip
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[1])]
    found = await b.ask(describe_log_dirs, version, DescribeLogDirsRequest(topics=wanted))
    assert [p.partition_index for p in found.results[0].topics[0].partitions] == [1]
    b.services.logs.offline_dirs.add("/data")
    found = await b.ask(describe_log_dirs, version, DescribeLogDirsRequest(topics=None))
    assert found.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", range(2))
@in_broker()
async def test_describe_cluster(b: Any, version: int) -> None:
    await b.update_metadata({}, {1: "r1", 2: None})
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    request.endpoint_type = 1
    found = await b.ask(describe_cluster, version, request)
    assert (found.cluster_id, found.controller_id) == ("the-cluster", 1)
    assert [(n.broker_id, n.port, n.rack) for n in found.brokers] == [
        (1, 9091, "r1"), (2, 9092, None),
    ]  # fmt: skip
    assert found.authorized_operations == {5, 7, 8, 9, 10, 11, 12}
    if version >= 1:
        for kind, code in ((2, "MISMATCHED_ENDPOINT_TYPE"), (9, "UNSUPPORTED_ENDPOINT_TYPE")):
            request.endpoint_type = kind
            found = await b.ask(describe_cluster, version, request)
            assert ErrorCode(found.error_code).name == code


@pytest.mark.parametrize("version", range(5))
@in_broker()
async def test_api_versions(b: Any, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a-b", client_software_version="1.0")
    found = await b.ask(api_versions, version, request)
    offered = {k.api_key: (k.min_version, k.max_version) for k in found.api_keys}
    needs_a_feature = {m.API.key for m in HANDLERS if m.API.key in (68, 69) or m.API.key >= 76}
    assert len(offered) == len(HANDLERS) - len(needs_a_feature)
    assert not needs_a_feature & offered.keys()
    assert offered[18] == (0, 4)
    assert offered[3] == (0, 13)
    assert [offered[key][1] for key in (0, 1, 8, 9)] == [11, 12, 9, 9], "no topic has an id"
    assert offered[0][0] == 0, "or older librdkafka stops compressing"
    assert offered[4][1] == 4, "what inter.broker.protocol.version 2.6 speaks, and no more"
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="", client_software_version="1")
        found = await b.ask(api_versions, version, request)
        assert found.error_code == ErrorCode.INVALID_REQUEST
