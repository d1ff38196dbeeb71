"""ZooKeeper's machine: what it refuses, what a Stat tells, and a multi that leaves no trace."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.zookeeper import acl
from highwater.zookeeper.acl import Acl, Id
from highwater.zookeeper.codes import Code, KeeperError
from highwater.zookeeper.ensemble import (
    Check,
    Create,
    Delete,
    Ensemble,
    Made,
    Op,
    Session,
    SetAcl,
    SetData,
)
from highwater.zookeeper.tree import Change, Event, Tree
from highwater.zookeeper.watches import Mode, Told, Type, Watches

ALICE = Id("digest", acl.digest_of("alice:secret"))


@pytest.fixture
def zk() -> Ensemble:
    return Ensemble()


def opened(zk: Ensemble, *ids: Id) -> Session:
    session = zk.open_session(len(zk.sessions) + 1, 6000)
    session.ids += ids
    return session


def refused(zk: Ensemble, op: Op, session_id: int = 1) -> Code:
    with pytest.raises(KeeperError) as error:
        zk.write(session_id, op, 0)
    return error.value.code


def test_a_stat_tells_when_and_how_often(zk: Ensemble) -> None:
    opened(zk)
    made, _ = zk.write(1, Create("/a", b"one"), 1000)
    assert made == Made("/a", zk.exists(1, "/a"))
    zk.write(1, Create("/a/b"), 2000)
    zk.write(1, Create("/a/c", ephemeral=True), 3000)
    zk.write(1, Delete("/a/b"), 4000)
    zk.write(1, SetData("/a", b"three"), 5000)
    stat = zk.exists(1, "/a")
    assert stat is not None
    assert (stat.czxid, stat.mzxid, stat.pzxid) == (2, 6, 5)
    assert (stat.ctime, stat.mtime) == (1000, 5000)
    assert (stat.version, stat.cversion, stat.aversion) == (1, 3, 0)
    assert (stat.ephemeral_owner, stat.data_length, stat.num_children) == (0, 5, 1)
    child = zk.exists(1, "/a/c")
    assert child is not None
    assert child.ephemeral_owner == 1


def test_each_change_has_a_zxid_and_so_has_one_that_is_refused(zk: Ensemble) -> None:
    opened(zk)
    assert zk.zxid == 1, "a session's beginning"
    assert refused(zk, Delete("/a")) is Code.NO_NODE
    zk.write(1, Create("/a"), 0)
    assert zk.zxid == 3
    assert zk.multi(1, [Check("/b", 0)], 0) == ([Code.NO_NODE], [])
    zk.end_session(1, 0)
    assert zk.zxid == 5
    assert zk.end_session(1, 0) == ([], [])
    assert zk.zxid == 5
    assert refused(zk, Delete("/a")) is Code.SESSION_EXPIRED
    assert zk.zxid == 5


def test_what_is_refused_and_why(zk: Ensemble) -> None:
    opened(zk)
    zk.write(1, Create("/a"), 0)
    zk.write(1, Create("/a/b"), 0)
    zk.write(1, Create("/e", ephemeral=True), 0)
    for op, code in (
        (Create("/a"), Code.NODE_EXISTS),
        (Create("/x/y"), Code.NO_NODE),
        (Create("/e/child"), Code.NO_CHILDREN_FOR_EPHEMERALS),
        (Create("a"), Code.BAD_ARGUMENTS),
        (Create("/a/"), Code.BAD_ARGUMENTS),
        (Create("/a/.."), Code.BAD_ARGUMENTS),
        (Create("/a/\ufffd"), Code.BAD_ARGUMENTS),
        (Create("/a/\0"), Code.BAD_ARGUMENTS),
        (Create("/n", acl=()), Code.INVALID_ACL),
        (Create("/n", acl=[Acl(31, "world", "nobody")]), Code.INVALID_ACL),
        (Create("/n", acl=[Acl(31, "auth", "")]), Code.INVALID_ACL),
        (Create("/n", acl=[Acl(31, "ip", "localhost")]), Code.INVALID_ACL),
        (Delete("/a"), Code.NOT_EMPTY),
        (Delete("/a/b", 1), Code.BAD_VERSION),
        (Delete("/zookeeper"), Code.BAD_ARGUMENTS),
        (Delete("/"), Code.BAD_ARGUMENTS),
        (SetData("/a", b"", 1), Code.BAD_VERSION),
        (SetData("/x", b""), Code.NO_NODE),
        (SetAcl("/a", acl.OPEN, 1), Code.BAD_VERSION),
        (Check("/a", 1), Code.BAD_VERSION),
    ):
        assert refused(zk, op) is code, op
    zk.write(1, Create("/ü€/".rstrip("/")), 0)


def test_names_of_sequential_znodes_count_what_was_ever_made(zk: Ensemble) -> None:
    opened(zk)
    zk.write(1, Create("/a"), 0)
    for number in range(3):
        made, _ = zk.write(1, Create("/a/n-", sequential=True), 0)
        assert made.path == f"/a/n-{number:010d}"
        zk.write(1, Delete(made.path), 0)
    made, _ = zk.write(1, Create("/a/", sequential=True), 0)
    assert made.path == "/a/0000000003"


def test_who_has_no_right_is_refused(zk: Ensemble) -> None:
    opened(zk, ALICE)
    opened(zk, Id("ip", "10.1.2.3"))
    own = [Acl(acl.ALL, "auth", ""), Acl(acl.READ, "ip", "10.1.0.0/16")]
    zk.write(1, Create("/a", acl=own), 0)
    assert zk.tree.nodes["/a"].acl == (Acl(31, *ALICE), Acl(1, "ip", "10.1.0.0/16"))
    assert zk.get(2, "/a")[0] == b""
    for op in (SetData("/a", b""), Create("/a/b"), SetAcl("/a", acl.OPEN)):
        assert refused(zk, op, 2) is Code.NO_AUTH, op
    zk.write(1, Create("/a/b", acl=[Acl(acl.ALL & ~acl.READ, *acl.ANYONE)]), 0)
    assert refused(zk, Delete("/a/b"), 2) is Code.NO_AUTH, "a right of the parent"
    for read in (zk.get, zk.exists, zk.children):
        with pytest.raises(KeeperError, match="NO_AUTH"):
            read(2, "/a/b")
    made, _ = zk.write(1, SetAcl("/a", acl.OPEN), 0)
    assert made.stat is not None
    assert made.stat.aversion == 1
    zk.write(2, SetData("/a", b""), 0)


def test_a_sessions_end_takes_its_znodes_along(zk: Ensemble) -> None:
    first, second = opened(zk), opened(zk)
    zk.write(1, Create("/a"), 0)
    for name in "xy":
        zk.write(first.id, Create(f"/a/{name}", ephemeral=True), 0)
    zk.write(second.id, Create("/a/z", ephemeral=True), 0)
    zk.children(2, "/a", "watcher")
    zk.exists(2, "/a/y", "watcher")
    gone, told = zk.end_session(1, 0)
    assert gone == ["/a/x", "/a/y"]
    assert told == [
        Told("watcher", Event.CHILDREN_CHANGED, "/a"),
        Told("watcher", Event.DELETED, "/a/y"),
    ]
    assert zk.children(2, "/a")[0] == ["z"]
    assert zk.tree.ephemerals == {2: {"/a/z": None}}


def test_a_multi_sees_what_it_has_done_and_gives_a_result_each(zk: Ensemble) -> None:
    opened(zk)
    ops: list[Op] = [
        Create("/a"),
        Create("/a/n", sequential=True),
        SetData("/a", b"x"),
        Check("/a", 1),
    ]
    results, _ = zk.multi(1, ops, 7)
    paths = [made.path for made in results if isinstance(made, Made)]
    assert paths == ["/a", "/a/n0000000000", "", ""]
    assert {zk.tree.nodes[path].czxid for path in paths[:2]} == {2}
    zk.get(1, "/a", "watcher")
    failing: list[Op] = [SetData("/a", b"y"), Delete("/a/n0000000000"), Delete("/b"), Delete("/a")]
    codes = [Code.OK, Code.OK, Code.NO_NODE, Code.RUNTIME_INCONSISTENCY]
    assert zk.multi(1, failing, 8) == (codes, [])
    assert zk.get(1, "/a")[0] == b"x"
    _, told = zk.write(1, SetData("/a", b"z"), 9)
    assert told == [Told("watcher", Event.DATA_CHANGED, "/a")]


PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/d/e", "/zookeeper"])
OPS = st.one_of(
    st.builds(Create, PATHS, st.just(b"1"), ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(Delete, PATHS, st.integers(-1, 1)),
    st.builds(SetData, PATHS, st.just(b"2"), st.integers(-1, 1)),
    st.builds(SetAcl, PATHS, st.just([Acl(acl.ALL, *acl.ANYONE), Acl(1, *ALICE)])),
)


def state(tree: Tree) -> object:
    return copy.deepcopy((tree.nodes, tree.ephemerals))


@settings(max_examples=200, deadline=None)
@given(st.lists(OPS, max_size=6), st.lists(OPS, min_size=1, max_size=6))
def test_a_multi_that_fails_leaves_everything_as_it_was(before: list[Op], ops: list[Op]) -> None:
    zk = Ensemble()
    opened(zk)
    zk.multi(1, before, 1)
    known = state(zk.tree)
    results, told = zk.multi(1, [*ops, Check("/nowhere")], 2)
    assert told == []
    assert not any(isinstance(result, Made) for result in results)
    assert state(zk.tree) == known
    zk.multi(1, ops, 2)
    for path, node in zk.tree.nodes.items():
        assert node.stat().num_children == len(node.children)
        assert (
            path == "/"
            or path.rpartition("/")[2] in zk.tree.nodes[path.rpartition("/")[0] or "/"].children
        )


def test_a_one_shot_watch_is_told_once_and_a_deletion_once_for_both_kinds() -> None:
    watches = Watches()
    watches.data("/a", "w")
    watches.children("/a", "w")
    watches.children("/", "w")
    assert watches.count("w") == 2
    told = watches.fire([Change(Event.DELETED, "/a"), Change(Event.CHILDREN_CHANGED, "/")])
    assert told == [Told("w", Event.DELETED, "/a"), Told("w", Event.CHILDREN_CHANGED, "/")]
    assert watches.fire([Change(Event.CREATED, "/a")]) == []
    assert (len(watches), watches.count("w")) == (0, 0)


def test_lasting_watches_are_told_again_and_recursive_ones_of_all_below() -> None:
    watches = Watches()
    watches.lasting("/a", "p", Mode.PERSISTENT)
    watches.lasting("/a", "r", Mode.PERSISTENT_RECURSIVE)
    for _ in range(2):
        told = watches.fire([Change(Event.CREATED, "/a/b"), Change(Event.CHILDREN_CHANGED, "/a")])
        assert told == [
            Told("r", Event.CREATED, "/a/b"),
            Told("p", Event.CHILDREN_CHANGED, "/a"),
        ]
    both = watches.fire([Change(Event.DATA_CHANGED, "/a")])
    assert [one.watcher for one in both] == ["p", "r"]
    watches.children("/a", "p")
    kinds = {who: [kind for kind in Type if watches.has("/a", who, kind)] for who in "pr"}
    assert kinds == {
        "p": [Type.CHILDREN, Type.ANY, Type.PERSISTENT],
        "r": [Type.ANY, Type.PERSISTENT_RECURSIVE],
    }
    assert watches.remove("/a", "p", Type.CHILDREN)
    assert not watches.remove("/a", "p", Type.DATA)
    assert watches.remove("/a", "r", Type.ANY)
    assert not watches.remove("/a", "r", Type.ANY)
    assert watches.fire([Change(Event.CREATED, "/a/b")]) == []
    watches.end("p")
    assert len(watches) == 0


def test_watches_that_are_set_again_tell_what_was_missed(zk: Ensemble) -> None:
    opened(zk)
    for path in ("/a", "/b", "/c"):
        zk.write(1, Create(path), 0)
    seen = zk.zxid
    zk.write(1, SetData("/a", b"1"), 0)
    zk.write(1, Create("/b/1"), 0)
    zk.write(1, Delete("/c"), 0)
    zk.write(1, Create("/d"), 0)
    told = zk.watches.restore(
        "w", zk.tree, seen, data=["/a", "/b", "/c"], exist=["/d", "/x"], children=["/a", "/b", "/c"]
    )
    assert [(one.event, one.path) for one in told] == [
        (Event.DATA_CHANGED, "/a"),
        (Event.DELETED, "/c"),
        (Event.CREATED, "/d"),
        (Event.CHILDREN_CHANGED, "/b"),
        (Event.DELETED, "/c"),
    ]
    assert zk.watches.has("/b", "w", Type.DATA)
    assert zk.watches.has("/x", "w", Type.DATA)
    assert zk.watches.has("/a", "w", Type.CHILDREN)
