"""The code's assumptions about ZooKeeper, checked on the real one and on the simulated one."""

from __future__ import annotations

import pytest
import trio

from highwater.world.api import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    WatchEvent,
    WatchKind,
    ZkError,
)
from tests.contract.conftest import Env, in_world_with_zookeeper


async def _events(seen: list[WatchEvent], n: int) -> list[WatchEvent]:
    with trio.fail_after(10):
        while len(seen) < n:
            await trio.sleep(0.01)
    await trio.sleep(0.05)
    return seen


@in_world_with_zookeeper
async def test_create_gives_the_stat_and_get_reads_it_back(env: Env) -> None:
    async with env.session() as zk:
        path, stat = await zk.create("/a", b"one")
        assert (path, stat.version, stat.ephemeral_owner) == ("/a", 0, 0)
        assert stat.czxid == stat.mzxid > 0
        assert await zk.get("/a") == (b"one", stat)
        assert await zk.exists("/a") == stat
        assert await zk.exists("/b") is None
        assert await zk.children("/a") == []


@in_world_with_zookeeper
async def test_errors_name_what_is_wrong(env: Env) -> None:
    async with env.session() as zk:
        await zk.create("/a", b"")
        await zk.create("/a/b", b"")
        with pytest.raises(NodeExists, match="/a"):
            await zk.create("/a", b"")
        with pytest.raises(NoNode):
            await zk.create("/x/y", b"")
        with pytest.raises(NoNode):
            await zk.get("/x")
        with pytest.raises(NoNode):
            await zk.children("/x")
        with pytest.raises(NoNode):
            await zk.set("/x", b"")
        with pytest.raises(NoNode):
            await zk.delete("/x")
        with pytest.raises(NotEmpty):
            await zk.delete("/a")
        with pytest.raises(BadVersion):
            await zk.set("/a", b"", version=3)
        with pytest.raises(BadVersion):
            await zk.delete("/a/b", version=3)
        await zk.create("/e", b"", ephemeral=True)
        with pytest.raises(ZkError):
            await zk.create("/e/child", b"")


@in_world_with_zookeeper
async def test_versions_count_the_writes_of_a_znode(env: Env) -> None:
    async with env.session() as zk:
        _, made = await zk.create("/a", b"0")
        for version in range(3):
            stat = await zk.set("/a", b"x", version=version)
            assert stat.version == version + 1
            assert stat.czxid == made.czxid
            assert stat.mzxid > made.mzxid
        await zk.delete("/a", version=3)
        _, again = await zk.create("/a", b"")
        assert again.version == 0
        assert again.czxid > stat.mzxid


@in_world_with_zookeeper
async def test_zxids_rise_across_znodes(env: Env) -> None:
    async with env.session() as zk:
        zxids = [(await zk.create(f"/n{i}", b""))[1].czxid for i in range(5)]
        assert zxids == sorted(set(zxids))


@in_world_with_zookeeper
async def test_sequential_names_count_up(env: Env) -> None:
    async with env.session() as zk:
        await zk.create("/q", b"")
        names = [(await zk.create("/q/n-", b"", sequential=True))[0] for _ in range(3)]
        assert names == [f"/q/n-{i:010d}" for i in range(3)]
        await zk.delete(names[1])
        # the number counts creations of any kind under the parent
        await zk.create("/q/other", b"")
        assert (await zk.create("/q/n-", b"", sequential=True))[0] == "/q/n-0000000004"
        assert await zk.children("/q") == ["n-0000000000", "n-0000000002", "n-0000000004", "other"]


@in_world_with_zookeeper
async def test_multi_is_all_or_nothing_and_gives_results_in_order(env: Env) -> None:
    async with env.session() as zk:
        await zk.create("/epoch", b"1")
        results = await zk.multi(
            [Check("/epoch", 0), Create("/t", b"x"), SetData("/t", b"y", 0), Delete("/t", 1)]
        )
        assert results[0] is None
        assert results[1] == "/t"
        assert getattr(results[2], "version", None) == 1
        assert results[3] is None
        with pytest.raises(BadVersion, match="/epoch"):
            await zk.multi([Create("/u", b""), Check("/epoch", 9), Delete("/nothing")])
        assert await zk.exists("/u") is None
        with pytest.raises(NodeExists, match="/epoch"):
            await zk.multi([Create("/u", b""), Create("/epoch", b""), SetData("/none", b"")])
        with pytest.raises(NoNode):
            await zk.multi([SetData("/none", b"")])
        assert await zk.exists("/u") is None


@in_world_with_zookeeper
async def test_a_multi_can_take_over_an_ephemeral(env: Env) -> None:
    async with env.session() as old, env.session() as new:
        await old.create("/controller", b"1", ephemeral=True)
        await new.create("/controller_epoch", b"1")
        await new.multi(
            [
                SetData("/controller_epoch", b"2", 0),
                Delete("/controller"),
                Create("/controller", b"2", ephemeral=True),
            ]
        )
        data, stat = await new.get("/controller")
        assert (data, stat.ephemeral_owner) == (b"2", new.session_id)
        await old.close()
        assert await new.exists("/controller") is not None


@in_world_with_zookeeper
async def test_watches_fire_once_and_tell_the_kind(env: Env) -> None:
    async with env.session() as zk, env.session() as other:
        seen: list[WatchEvent] = []
        assert await zk.exists("/a", seen.append) is None
        await other.create("/a", b"")
        assert await _events(seen, 1) == [WatchEvent(WatchKind.CREATED, "/a")]
        await zk.get("/a", seen.append)
        await other.set("/a", b"1")
        await other.set("/a", b"2")
        assert await _events(seen, 2) == [
            WatchEvent(WatchKind.CREATED, "/a"),
            WatchEvent(WatchKind.CHANGED, "/a"),
        ]
        seen.clear()
        await zk.children("/a", seen.append)
        await other.create("/a/b", b"")
        await other.create("/a/c", b"")
        assert await _events(seen, 1) == [WatchEvent(WatchKind.CHILD, "/a")]
        seen.clear()
        await zk.get("/a/b", seen.append)
        await other.delete("/a/b")
        assert await _events(seen, 1) == [WatchEvent(WatchKind.DELETED, "/a/b")]


@in_world_with_zookeeper
async def test_two_watches_of_one_path_both_fire(env: Env) -> None:
    async with env.session() as zk:
        await zk.create("/a", b"")
        one: list[WatchEvent] = []
        two: list[WatchEvent] = []
        await zk.get("/a", one.append)
        await zk.exists("/a", two.append)
        await zk.set("/a", b"1")
        await _events(one, 1)
        await _events(two, 1)
        assert len(one) == len(two) == 1


@in_world_with_zookeeper
async def test_no_watch_is_left_by_a_read_that_failed(env: Env) -> None:
    async with env.session() as zk:
        seen: list[WatchEvent] = []
        with pytest.raises(NoNode):
            await zk.get("/a", seen.append)
        await zk.create("/a", b"")
        await trio.sleep(0.2)
        assert seen == []


@in_world_with_zookeeper
async def test_closing_a_session_takes_its_ephemerals_and_fires_watches(env: Env) -> None:
    async with env.session() as watcher:
        seen: list[WatchEvent] = []
        async with env.session() as zk:
            _, stat = await zk.create("/e", b"", ephemeral=True)
            assert stat.ephemeral_owner == zk.session_id
            await watcher.get("/e", seen.append)
        assert await _events(seen, 1) == [WatchEvent(WatchKind.DELETED, "/e")]
        assert await watcher.exists("/e") is None


@in_world_with_zookeeper
async def test_an_expired_session_is_dead_for_good(env: Env) -> None:
    assert env.expire is not None
    async with env.session() as other, env.session() as zk:
        states: list[SessionState] = []
        zk.on_session.append(states.append)
        seen: list[WatchEvent] = []
        await zk.create("/e", b"", ephemeral=True)
        await zk.get("/e", seen.append)
        await env.expire(zk)
        with trio.fail_after(10):
            while not zk.expired:
                await trio.sleep(0.01)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        assert seen == []
        with pytest.raises(SessionExpired):
            await zk.get("/e")
        assert await other.exists("/e") is None
        await trio.sleep(1)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED]
        with pytest.raises(SessionExpired):
            await zk.multi([Create("/e", b"")])


@in_world_with_zookeeper
async def test_operations_are_pipelined_and_kept_in_order(env: Env) -> None:
    async with env.session() as zk:
        await zk.create("/a", b"")
        versions: list[int] = []

        async def write() -> None:
            versions.append((await zk.set("/a", b"")).version)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(write)
        assert sorted(versions) == list(range(1, 21))


@in_world_with_zookeeper
async def test_the_session_timeout_is_the_negotiated_one(env: Env) -> None:
    async with env.session(4000) as zk:
        assert zk.session_timeout_ms == 4000
        assert zk.session_id != 0
