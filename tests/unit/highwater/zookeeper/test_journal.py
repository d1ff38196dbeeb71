"""What a restart finds: the same ensemble, wherever the log was cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.zookeeper import acl, journal
from highwater.zookeeper.ensemble import Create, Delete, Ensemble, Made, Op, SetAcl
from tests.unit.highwater.zookeeper.test_ensemble import ALICE, OPS, state

SESSIONS = (1, 2)


def played(multis: list[tuple[int, list[Op]]]) -> tuple[Ensemble, list[bytes]]:
    """An ensemble, and its log, one record a change."""
    zk, log = Ensemble(), []
    for id_ in SESSIONS:
        session = zk.open_session(id_, 6000, b"secret")
        session.ids.append(ALICE)
        log.append(journal.session_opened(zk, session, 0))
    for ms, (id_, ops) in enumerate(multis):
        if not ops:
            if id_ in zk.sessions:
                zk.end_session(id_, ms)
                log.append(journal.session_ended(zk, id_, ms))
            continue
        if id_ not in zk.sessions:
            continue
        results, _ = zk.multi(id_, ops, ms)
        made = [one for one in results if isinstance(one, Made)]
        if len(made) == len(ops):
            log.append(journal.changed(zk, id_, ops, made, ms))
        else:
            log.append(journal.refused(zk))
    return zk, log


def replayed(zk: Ensemble, log: bytes) -> int:
    """How much of the log was whole."""
    end = 0
    for at, payload in journal.records(log):
        journal.replay(zk, payload)
        end = at
    return end


MULTIS = st.lists(st.tuples(st.sampled_from(SESSIONS), st.lists(OPS, max_size=3)), max_size=12)


@settings(max_examples=150, deadline=None)
@given(MULTIS, st.integers(0, 30), st.integers(0, 30))
def test_snapshot_and_log_give_the_same_ensemble(
    multis: list[tuple[int, list[Op]]], taken: int, cut: int
) -> None:
    zk, log = played(multis)
    rebuilt = Ensemble()
    assert replayed(rebuilt, b"".join(log)) == sum(map(len, log))
    last = zk.zxid
    assert state(rebuilt.tree) == state(zk.tree)
    assert rebuilt.sessions.keys() == zk.sessions.keys()
    assert rebuilt.zxid == last

    earlier = Ensemble()
    replayed(earlier, b"".join(log[:taken]))
    found = journal.restored(b"".join(journal.snapshot(earlier)))
    assert found is not None
    assert (state(found.tree), found.zxid) == (state(earlier.tree), earlier.zxid)
    assert {id_: one.password for id_, one in found.sessions.items()} == {
        id_: one.password for id_, one in earlier.sessions.items()
    }
    replayed(found, b"".join(log))
    assert state(found.tree) == state(zk.tree)

    torn = b"".join(log)[: max(0, sum(map(len, log)) - cut)]
    whole = Ensemble()
    end = replayed(whole, torn)
    kept = Ensemble()
    replayed(kept, torn[:end])
    assert state(whole.tree) == state(kept.tree)


def test_a_damaged_record_ends_the_log_and_a_snapshot_without_its_end_is_none() -> None:
    zk, log = played([])
    data = bytearray(b"".join(log))
    data[len(log[0]) + 12] ^= 1
    assert [at for at, _ in journal.records(bytes(data))] == [len(log[0])]
    whole = b"".join(journal.snapshot(zk))
    assert journal.restored(whole) is not None
    for cut in range(len(whole)):
        assert journal.restored(whole[:cut]) is None
    assert journal.restored(whole + whole) is None


def test_rights_are_kept_as_they_were_fixed() -> None:
    own = [acl.Acl(acl.ALL, "auth", "")]
    first: list[Op] = [Create("/a", acl=own), SetAcl("/a", acl.OPEN)]
    gone: list[Op] = [Create("/b", acl=own), SetAcl("/b", own), Delete("/b")]
    zk, log = played([(1, first), (1, [SetAcl("/a", own)]), (1, gone)])
    rebuilt = Ensemble()
    replayed(rebuilt, b"".join(log))
    assert rebuilt.tree.nodes["/a"].acl == zk.tree.nodes["/a"].acl == (acl.Acl(31, *ALICE),)
    assert state(rebuilt.tree) == state(zk.tree)
