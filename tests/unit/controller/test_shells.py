"""Candidate, runtime and sender on simulated machines: the race, take-over, fencing, channels."""

from __future__ import annotations

import pytest
import trio

from highwater.controller.shell import sender
from highwater.kafka import znodes
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import BrokerId, TopicPartition
from tests.running import running_in
from tests.unit.controller.sim_cluster import Cluster, run

T0 = TopicPartition("t", 0)
in_cluster = running_in(run)


@pytest.mark.thorough
@in_cluster()
async def test_one_of_them_becomes_the_controller_and_tells_all(cluster: Cluster) -> None:
    assert await cluster.epoch() == 1
    await cluster.create_topic("t", (1, 2, 3))
    for member in cluster.members.values():
        assert member.states[T0].leader == 1
        epochs = {(r.API_KEY, r.controller_epoch, r.broker_epoch) for r in member.requests}
        assert {e[1:] for e in epochs} == {(1, member.epoch)}
        assert {e[0] for e in epochs} == {4, 6}
        update = next(r for r in reversed(member.requests) if r.API_KEY == 6)
        assert [b.id for b in update.live_brokers] == [1, 2, 3]
        assert update.live_brokers[1].endpoints[0].host == "b2"


@pytest.mark.thorough
@in_cluster()
async def test_a_killed_controller_is_replaced_long_before_its_session_ends(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    dead = cluster.controller().broker_id
    led = TopicPartition("t", dead - 1)
    began = trio.current_time()
    cluster.kill(dead)
    await cluster.until(lambda: cluster.active())
    assert trio.current_time() - began < 1
    others = [m for b, m in cluster.members.items() if b != dead]
    await cluster.until(lambda: all(m.states[led].leader != dead for m in others))
    assert trio.current_time() - began < 1.5
    assert await cluster.epoch() == 2
    state = await cluster.state(led)
    assert dead not in state.isr
    assert state.controller_epoch == 2
    # and when the registration goes at last, nothing more happens to it
    await trio.sleep(10)
    assert await cluster.state(led) == state


@in_cluster()
async def test_a_killed_leader_is_replaced_long_before_its_session_ends(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    dead = next(b for b in (1, 2, 3) if b != cluster.controller().broker_id)
    led = TopicPartition("t", dead - 1)
    began = trio.current_time()
    cluster.kill(dead)
    others = [m for b, m in cluster.members.items() if b != dead]
    await cluster.until(lambda: all(m.states[led].leader != dead for m in others))
    assert trio.current_time() - began < 0.5
    assert await cluster.epoch() == 1


@pytest.mark.thorough
@in_cluster(probe_ms=0)
async def test_without_probes_everything_waits_for_the_session(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    dead = cluster.controller().broker_id
    began = trio.current_time()
    cluster.kill(dead)
    await cluster.until(lambda: cluster.active())
    assert trio.current_time() - began > 3
    assert len(cluster.members[dead].connected) <= 4  # the channels, and no probes


@in_cluster()
async def test_a_restarted_broker_takes_its_own_stale_znode_over(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3))
    old = cluster.controller().broker_id
    cluster.kill(old)
    cluster.start(old)
    await cluster.until(lambda: len(cluster.active()) == 1)
    await cluster.until(lambda: cluster.known() == {1, 2, 3}, 20)
    member = cluster.members[old]
    await cluster.until(lambda: T0 in member.states)
    assert {r.broker_epoch for r in member.requests} == {member.epoch}


@in_cluster()
async def test_the_controller_can_be_moved_by_deleting_the_znode(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3))
    before = cluster.controller()
    await cluster.tool.delete(znodes.CONTROLLER)
    with trio.fail_after(5):
        while await cluster.epoch() == 1:
            await trio.sleep(0.01)
    await trio.sleep(1)
    after = cluster.controller()
    assert await cluster.epoch() == 2
    terms = {b: m.candidate.terms for b, m in cluster.members.items() if m.candidate}
    expected = dict.fromkeys((1, 2, 3), 0)
    expected[before.broker_id] += 1
    expected[after.broker_id] += 1
    assert terms == expected


@pytest.mark.thorough
@in_cluster()
async def test_a_frozen_controller_wakes_up_fenced(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    zombie = cluster.controller()
    zombie.world.process.freeze()
    await cluster.until(lambda: [b for b in cluster.active() if b != zombie.broker_id], 20)
    (new,) = [b for b in cluster.active() if b != zombie.broker_id]
    led = TopicPartition("t", zombie.broker_id - 1)
    await cluster.until(lambda: cluster.members[new].states[led].leader != zombie.broker_id)
    counts = {b: len(m.requests) for b, m in cluster.members.items()}
    zombie.world.process.thaw()
    await cluster.until(lambda: not zombie.active, 20)
    await trio.sleep(2)
    assert cluster.active() == [new]
    for broker, member in cluster.members.items():
        if member is zombie:
            continue  # messages that it had sent to itself were on the way when it froze
        late = [r for r in member.requests[counts[broker] :] if r.controller_epoch == 1]
        assert not late
    assert (await cluster.state(led)).controller_epoch == 2


@pytest.mark.thorough
@in_cluster()
async def test_a_controller_that_is_cut_off_from_zookeeper_stops(cluster: Cluster) -> None:
    old = cluster.controller()
    zookeeper = cluster.simulation.zookeeper.host
    cluster.simulation.fabric.cut(old.host, zookeeper)
    cluster.simulation.fabric.cut(zookeeper, old.host)
    await cluster.until(lambda: not old.active, 20)
    await cluster.until(lambda: cluster.active(), 20)
    assert await cluster.epoch() == 2


@in_cluster()
async def test_a_broker_that_knows_a_newer_controller_makes_this_one_resign(
    cluster: Cluster,
) -> None:
    other = next(m for m in cluster.members.values() if not m.active)
    other.error = ErrorCode.STALE_CONTROLLER_EPOCH
    old = cluster.controller()
    await cluster.create_topic("t", (1, 2, 3), wait=False)
    await cluster.until(lambda: old.candidate is not None and not old.active)
    other.error = 0
    await trio.sleep(3)
    assert len(cluster.active()) == 1
    assert await cluster.epoch() >= 2


@in_cluster()
async def test_requests_through_the_port(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3))
    active = cluster.controller().candidate
    assert active is not None
    port = active.port
    assert port.active
    assert await port.elect_leaders([T0], unclean=False) == {
        T0: (ErrorCode.ELECTION_NOT_NEEDED, None)
    }
    answer = await port.alter_partition_reassignments({T0: [2, 1, 3]})
    assert answer == {T0: (ErrorCode.NONE, None)}
    assert await port.elect_leaders([T0], unclean=False) == {T0: (ErrorCode.NONE, None)}
    assert (await cluster.state(T0)).leader == 2
    assert await port.list_partition_reassignments(None) == {}
    assert await port.controlled_shutdown(BrokerId(2), -1) == []
    assert (await cluster.state(T0)).leader == 1
    with pytest.raises(ApiError) as refused:
        await port.controlled_shutdown(BrokerId(9), -1)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    idle = next(m for m in cluster.members.values() if not m.active).candidate
    assert idle is not None
    assert not idle.port.active
    with pytest.raises(ApiError) as refused:
        await idle.port.elect_leaders(None, unclean=False)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


@in_cluster()
async def test_requests_in_flight_are_refused_when_the_term_ends(cluster: Cluster) -> None:
    active = cluster.controller().candidate
    assert active is not None
    runtime = active.runtime
    codes: list[ErrorCode] = []

    async def ask() -> None:
        try:
            await active.port.elect_leaders(None, unclean=False)
        except ApiError as e:
            codes.append(e.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        runtime.stop("a test")
    assert codes in ([ErrorCode.NOT_CONTROLLER], [])


@in_cluster()
async def test_a_topic_is_deleted_with_the_brokers_help(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3))
    await cluster.tool.create(znodes.delete_topic_path("t"))
    with trio.fail_after(10):
        while await cluster.tool.exists(znodes.topic_path("t")) is not None:
            await trio.sleep(0.01)
    assert all(m.deleted == [T0] for m in cluster.members.values())


@in_cluster(seeds=1)
async def test_a_thousand_partitions(cluster: Cluster) -> None:
    await cluster.create_topic("t", *[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 334)
    for member in cluster.members.values():
        assert len(member.states) == 1002
        assert len([r for r in member.requests if r.API_KEY == 4]) == 2  # of 1,000 at most


@pytest.mark.thorough
@in_cluster(controller_socket_timeout_ms=1000)
async def test_a_channel_that_overflows_starts_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "QUEUE_LIMIT", 5)

    await cluster.create_topic("t", (1, 2, 3))
    slow = next(m for m in cluster.members.values() if not m.active)
    fast = [m for m in cluster.members.values() if m is not slow]
    slow.answering = False
    for n in range(20):
        tp = TopicPartition(f"u{n}", 0)
        data = znodes.encode_topic(
            znodes.decode_topic(tp.topic, b'{"version":3,"partitions":{"0":[1,2,3]}}')
        )
        await cluster.tool.create(znodes.topic_path(tp.topic), data)
        await cluster.led(tp, fast)
    slow.answering = True
    slow.connected.clear()
    last = TopicPartition("u19", 0)
    await cluster.until(lambda: last in slow.states, 120)
    assert len(slow.states) == 21


@in_cluster(seeds=1)
async def test_gauges(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2, 3))
    active = cluster.controller().candidate
    assert active is not None
    found = active.gauges()
    assert found["ActiveControllerCount"] == 1
    assert found["GlobalPartitionCount"] == 1
    idle = next(m for m in cluster.members.values() if not m.active).candidate
    assert idle is not None
    assert idle.gauges() == {"ActiveControllerCount": 0}
    assert idle.controller_id == active.controller_id


@in_cluster(seeds=1)
async def test_a_damaged_controller_epoch_is_told_once_and_waited_for(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.tool.set(znodes.CONTROLLER_EPOCH, b"")
    await cluster.tool.delete(znodes.CONTROLLER)
    await cluster.until(lambda: not cluster.active())
    await trio.sleep(5)
    assert not cluster.active()
    told = [r for r in caplog.records if "/controller_epoch is not an epoch" in r.getMessage()]
    assert len(told) == len(cluster.members)
    await cluster.tool.set(znodes.CONTROLLER_EPOCH, b"1")
    await cluster.until(lambda: len(cluster.active()) == 1)
    assert await cluster.epoch() == 2
