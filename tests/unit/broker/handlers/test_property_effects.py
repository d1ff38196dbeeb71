"""The effects of single properties of a broker that no other test shows."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from highwater.broker.admin.leaving import leave_cluster
from highwater.broker.handlers import metadata
from highwater.broker.membership.registration import register
from highwater.broker.quota.entities import Quota
from highwater.broker.quota.quota_manager import Quotas
from highwater.broker.replica.throttles import ReplicationThrottles
from highwater.kafka import znodes
from highwater.kafka.config import Config
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import TOPIC_IDS, announced
from highwater.kafka.types import BrokerEpoch, BrokerId
from highwater.kafka.wire.compression import Compression
from highwater.kafka.wire.messages import MetadataRequest
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import batches, build_batch
from tests.unit.broker.handlers import test_groups as groups
from tests.unit.broker.handlers import test_transactions as transactions
from tests.unit.broker.handlers.conftest import in_broker, run_in_broker
from tests.unit.broker.handlers.test_produce_validation import send
from tests.unit.broker.handlers.test_records import error_of, lead


@in_broker(auto_create_topics_enable=False)
async def test_topics_are_not_created_by_their_names_alone(b: Any) -> None:
    asked = MetadataRequest.MetadataRequestTopic(name="auto")
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=True)
    (topic,) = (await b.ask(metadata, 8, request)).topics
    assert ErrorCode(topic.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await b.stored_topic("auto") is None


@pytest.mark.parametrize(
    "bounds",
    [{"group_min_session_timeout_ms": 10_001}, {"group_max_session_timeout_ms": 9_999}],
    ids=["min", "max"],
)
def test_a_members_session_has_bounds(bounds: dict[str, int]) -> None:
    async def body(node: groups.Node) -> None:
        await node.leads()
        error = ErrorCode((await node.join()).error_code)
        assert error is ErrorCode.INVALID_SESSION_TIMEOUT

    groups.run(body, **bounds)


@pytest.mark.parametrize(("longest", "error"), [(0, "OFFSET_METADATA_TOO_LARGE"), (1, "NONE")])
def test_metadata_of_offsets_has_a_bound(longest: int, error: str) -> None:
    async def body(node: groups.Node) -> None:
        await node.leads()
        assert await node.commit(5) == error  # its metadata is of one byte

    groups.run(body, offset_metadata_max_bytes=longest)


@groups.in_node(offsets_topic_compression_codec=1)
async def test_offsets_are_compressed(node: groups.Node) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    (segment,) = node.b.services.replicas.partition(groups.TP).leader_log().segments
    stored = segment.file.read(0, segment.size)
    assert [h.compression for h in batches(stored)] == [Compression.GZIP]


@groups.in_node(offsets_retention_minutes=1, offsets_retention_check_interval_ms=90_000)
async def test_offsets_are_looked_at_in_their_interval(node: groups.Node) -> None:
    await node.leads()
    assert await node.commit(5) == "NONE"
    await trio.sleep(60 + 29)
    assert await node.fetch() == ("NONE", 5)
    await trio.sleep(2)
    assert await node.fetch() == ("NONE", None)


@pytest.mark.parametrize(("timeout_ms", "fits"), [(500, True), (501, False)])
@in_broker(transaction_max_timeout_ms=500)
async def test_transactions_have_a_longest_time(b: Any, timeout_ms: int, fits: bool) -> None:
    with pytest.raises(ApiError) as caught:
        b.services.transactions.needs_producer_id("t", timeout_ms, None)
    assert (caught.value.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT) == fits


@in_broker(controlled_shutdown_max_retries=2, controlled_shutdown_retry_backoff_ms=7000)
async def test_a_broker_asks_so_often_to_hand_over_its_leaders(b: Any) -> None:
    await b.update_metadata({})
    began = trio.current_time()
    await leave_cluster(b.services)  # its controller cannot move all
    assert b.controller.asked == [(1, 10)] * 3
    assert trio.current_time() - began == pytest.approx(14)


def test_rates_of_replication_are_over_their_own_windows() -> None:
    throttles = ReplicationThrottles(
        Config(
            replication_quota_window_num=2,
            replication_quota_window_size_seconds=5,
            alter_log_dirs_replication_quota_window_num=3,
            alter_log_dirs_replication_quota_window_size_seconds=2,
        )
    )
    for quota, until_ms in (
        (throttles.leader, 10_000),
        (throttles.follower, 10_000),
        (throttles.log_dirs, 6_000),
    ):
        quota.record(1000, 0)
        assert quota.bytes_per_second(until_ms - 1) > 0
        assert quota.bytes_per_second(until_ms) == 0


def test_quotas_are_over_their_own_windows() -> None:
    config = Config(
        quota_window_num=2,
        quota_window_size_seconds=5,
        controller_quota_window_num=3,
        controller_quota_window_size_seconds=2,
    )
    quotas, quota = Quotas(config), Quota(1.0, "u", "c")
    for kind, until_ms in ((quotas.produce, 10_000), (quotas.mutation, 6_000)):
        rate = kind.sensor(quota, 0).rate
        rate.record(1000, 0)
        assert not rate.idle(until_ms - 1)
        assert rate.idle(until_ms)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 19)]
)
def test_a_log_is_compressed_at_its_level(codec: str, low: int, high: int) -> None:
    words = b"".join(b"%x " % (i * 2654435761 % 2**32 >> 20) for i in range(60_000))
    sizes = []

    async def body(b: Any) -> None:
        partition = await lead(b, compression_type=codec)
        data = bytes(build_batch([Record(b"k", words, b.services.world.clock.wall_ms())]))
        assert error_of(await send(b, 9, data)) == "NONE"
        sizes.append(partition.log.size)

    for level in (low, high):
        run_in_broker(body, **{f"compression_{codec}_level": level})
    assert sizes[0] > sizes[1]


def test_timed_out_transactions_are_looked_for_in_their_interval() -> None:
    async def body(node: transactions.Node) -> None:
        await node.leads()
        assert await node.init() == transactions.ME  # its time-out is a minute
        assert await node.add() == "NONE"
        known = node.b.services.transactions.shards[0].transactions
        await trio.sleep(89)
        assert known["x"].state.name == "ONGOING"
        await trio.sleep(2)
        assert known["x"].state.name != "ONGOING"

    transactions.run(body, transaction_abort_timed_out_transaction_cleanup_interval_ms=90_000)


def test_expired_transactional_ids_are_looked_for_in_their_interval() -> None:
    async def body(node: transactions.Node) -> None:
        await node.leads()
        assert await node.init() == transactions.ME
        known = node.b.services.transactions.shards[0].transactions
        await trio.sleep(89)
        assert "x" in known
        await trio.sleep(2)
        assert "x" not in known

    transactions.run(
        body,
        transactional_id_expiration_ms=1000,
        transaction_remove_expired_transaction_cleanup_interval_ms=90_000,
    )


@transactions.in_node(request_timeout_ms=7000)
async def test_a_coordinator_waits_so_long_for_its_replicas(node: transactions.Node) -> None:
    await node.leads(isr=(1, 2))  # broker 2 fetches nothing
    began = trio.current_time()
    assert isinstance(await node.init(), str)
    assert trio.current_time() - began == pytest.approx(7, abs=0.5)


@in_broker(replica_high_watermark_checkpoint_interval_ms=7000)
async def test_high_watermarks_are_written_in_their_interval(b: Any) -> None:
    await lead(b)
    path, disk = "/data/replication-offset-checkpoint", b.services.world.disk
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.services.logs.run)
        await nursery.start(b.services.replicas.run)
        await trio.sleep(6.9)
        assert not disk.exists(path)
        await trio.sleep(0.2)
        assert disk.exists(path)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("known", [True, False])
@in_broker()
async def test_topic_ids(b: Any, known: bool) -> None:
    """The scenario `ids-by-turns` shows what comes of it."""
    config = Config(highwater_topic_ids=known)
    features = announced(config.highwater_topic_ids)
    await register(b.zk, b.services.world, BrokerId(1), [], None, features)
    data, stat = await b.zk.get(znodes.broker_path(1))
    found = znodes.decode_broker(BrokerId(1), data, BrokerEpoch(stat.czxid))
    assert found.level(TOPIC_IDS) == known
