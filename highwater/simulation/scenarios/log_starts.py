"""Followers whose logs lie outside their leader's: below its start, after DeleteRecords or
retention without them, or above its end, after an unclean election.

Source: AbstractFetcherThread.fetchOffsetAndTruncate; KIP-107.
"""

from __future__ import annotations

from highwater.simulation.cluster import PORT, Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage

THREE = Shape(brokers=3, min_isr=2, lag_ms=10_000)
QUICK = Shape(brokers=3, min_isr=2, lag_ms=800)
"""A follower that does not fetch leaves the ISR soon."""
ALONE = Shape(brokers=3, min_isr=1, lag_ms=10_000)


async def _send(stage: Stage, first: int, end: int, *brokers: int) -> None:
    """Sends records named by their offsets, and waits until these replicas have them."""
    for n in range(first, end):
        await stage.insist(lambda n=n: stage.send(f"record {n}"))  # type: ignore[misc]
    await stage.until(lambda: all(stage.end(b) == end for b in brokers), "the replicas have all")


def _to_the_leader(stage: Stage) -> None:
    stage.client.believe(TP, stage.leader(), f"broker-{stage.leader()}", PORT)


async def _delete(stage: Stage, offset: int) -> int:
    """Deletes the records below an offset; gives the low watermark."""
    _to_the_leader(stage)
    stage.rules.shortened.add(TP.topic)
    return await stage.client.delete_records(TP, offset)


async def _in_line(stage: Stage, brokers: tuple[int, ...], start: int, end: int) -> None:
    """All replicas begin and end there, with the same batches, one record each."""
    await stage.whole()
    await stage.until(
        lambda: all(stage.place(b) == (start, end) for b in brokers), "the replicas are in line"
    )
    logs = [[batch for batch in stage.log(b) if batch[0] >= start] for b in brokers]
    stage.check(all(log == logs[0] for log in logs), f"the logs differ: {logs}")
    stage.check([base for base, _, _ in logs[0]] == list(range(start, end)), f"holes: {logs[0]}")


async def _read(stage: Stage, start: int, end: int) -> None:
    """Reads with a client that begins at the log's start."""
    _to_the_leader(stage)
    stage.check(await stage.client.list_offset(TP, -2) == start, "clients see another start")
    polled = await stage.client.fetch(TP, start)
    values = [value.decode() for _, _, value in polled.records]
    stage.check(values == [f"record {n}" for n in range(start, end)], f"read: {values}")


async def stopped_below_start(stage: Stage) -> None:
    """A follower is down while DeleteRecords removes its records and more: back, it drops its log
    and continues from the leader's start.  A kill right after that changes nothing, and it may
    lead."""
    await stage.start(1, 2, 3)
    await _send(stage, 0, 3, 1, 2, 3)
    stage.cluster.kill(3)
    await stage.until(lambda: stage.isr() == (1, 2), "the follower left the ISR")
    await _send(stage, 3, 8, 1, 2)
    stage.check(await _delete(stage, 6) == 6, "the low watermark is another")
    stage.cluster.start(3)
    await stage.until(lambda: stage.place(3)[0] == 6, "it begins where the leader does")
    stage.cluster.kill(3)
    stage.cluster.start(3)
    await _in_line(stage, (1, 2, 3), 6, 8)
    await stage.lead(3)
    await _send(stage, 8, 10, 1, 2, 3)
    await _in_line(stage, (1, 2, 3), 6, 10)
    await _read(stage, 6, 10)
    stage.in_order(
        "broker-3 .*is killed",
        r"broker-3\..*t-0: starts anew at 6, where leader 1 begins",
        "broker-3 .*t-0: leads, epoch",
    )


async def cut_off_below_start(stage: Stage) -> None:
    """The same for a follower that is only cut off: no new leader epoch makes it ask where to cut,
    and DeleteRecords waits for it in vain."""
    await stage.start(1, 2, 3, controller=2)
    await _send(stage, 0, 3, 1, 2, 3)
    stage.cut(1, 3)
    epoch = stage.epoch()
    await _send(stage, 3, 8, 1, 2)
    await stage.until(lambda: stage.isr() == (1, 2), "the follower left the ISR")
    await stage.fails(lambda: _delete(stage, 5), "REQUEST_TIMED_OUT")
    stage.check((stage.place(1), stage.place(3)) == ((5, 8), (0, 3)), "the log starts elsewhere")
    stage.heal()
    await _in_line(stage, (1, 2, 3), 5, 8)
    stage.check(stage.epoch() == epoch, "a new leader epoch came in between")
    await _read(stage, 5, 8)
    stage.in_order(
        "t-0: leader 1, epoch .*, ISR .1, 2.,",
        r"broker-3\..*t-0: starts anew at 5, where leader 1 begins",
        "t-0: leader 1, epoch .*, ISR .1, 2, 3.,",
    )


async def within_the_log(stage: Stage) -> None:
    """DeleteRecords below the end of a stopped follower: it keeps its log, and only moves its
    start."""
    await stage.start(1, 2, 3)
    await _send(stage, 0, 4, 1, 2, 3)
    await stage.until(lambda: stage.high_watermark(3) == 4, "it knows that all is committed")
    stage.cluster.stop(3)  # which writes that down
    await stage.until(lambda: stage.isr() == (1, 2), "the follower left the ISR")
    await _send(stage, 4, 6, 1, 2)
    await _delete(stage, 4)  # its LEO is the log's first offset
    stage.cluster.start(3)
    await _in_line(stage, (1, 2, 3), 4, 6)
    stage.check(stage.log(3)[0][0] == 0, "it dropped a log that its leader's continues")
    await _read(stage, 4, 6)


async def deleted_while_away(stage: Stage) -> None:
    """A leader that is cut off appends a record of its own; the next leader's record at that offset
    is committed, and deleted.  No epoch tells the first that its record is another one."""
    await stage.start(1, 2, 3)
    await _send(stage, 0, 2, 1, 2, 3)
    stage.isolate(1)
    await stage.send("only here", acks=1, to=1)
    stage.check(stage.end(1) == 3, "the old leader has not appended")
    await stage.until(lambda: stage.leader() not in (1, -1), "another leads")
    await _send(stage, 2, 5, 2, 3)
    stage.check(await _delete(stage, 3) == 3, "the low watermark is another")
    stage.heal()
    await _in_line(stage, (1, 2, 3), 3, 5)
    stage.check(stage.log(1)[0][0] == 3, f"it holds what was never committed: {stage.log(1)}")
    await stage.lead(1)
    await _read(stage, 3, 5)
    stage.in_order(
        r"t-0: leader [23], epoch",
        r"broker-1 .*t-0: follows [23], epoch .*, HW 2, LEO 3",
        r"broker-1\..*t-0: starts anew at 3, where leader [23] begins: what lies from 2 to 3",
    )


async def retention_passes_by(stage: Stage) -> None:
    """Retention leaves the leader with an empty log that begins where it ends; a replica that was
    down begins there, too."""
    await stage.start(1, 2, 3, config={"retention.bytes": "0", "segment.bytes": "200"})
    await _send(stage, 0, 2, 1, 2, 3)
    stage.cluster.kill(3)
    await stage.until(lambda: stage.isr() == (1, 2), "the follower left the ISR")
    await _send(stage, 2, 9, 1, 2)
    await stage.until(lambda: stage.place(1) == (9, 9), "retention took all that there was")
    stage.cluster.start(3)
    await _in_line(stage, (1, 2, 3), 9, 9)
    stage.in_order("broker-3 .*is killed", r"broker-3\..*t-0: starts anew at 9")


async def above_the_end(stage: Stage) -> None:
    """An unclean election makes a leader of a replica that ends below the start of the others.  One
    has no epochs left to ask about, is out of range, and cuts; the other cuts by its epochs."""
    stage.rules.unclean = frozenset({TP.topic})
    await stage.start(1, 2, 3, config={"unclean.leader.election.enable": "true"})
    await _send(stage, 0, 5, 1, 2, 3)
    stage.cluster.kill(3)
    await stage.until(lambda: 3 not in stage.isr(), "the one is out of the ISR")
    stage.cluster.kill(2)
    await stage.until(lambda: stage.isr() == (1,), "the other, too")
    await _send(stage, 5, 10, 1)
    await _delete(stage, 10)
    stage.cluster.start(2)
    await stage.until(lambda: stage.place(2) == (10, 10), "it starts anew, with nothing in it")
    await stage.until(lambda: stage.isr() == (1, 2), "it is in the ISR again")
    stage.cluster.kill(1)
    stage.cluster.kill(2)
    stage.cluster.start(3)
    await stage.until(lambda: stage.leader() == 3, "the unclean leader leads")
    stage.cluster.start(2)
    await stage.until(lambda: stage.place(2) == (5, 5), "it is cut to its leader's end")
    stage.cluster.start(1)
    await stage.whole()
    await _send(stage, 5, 7, 1, 2, 3)
    stage.check([stage.place(b)[1] for b in (1, 2, 3)] == [7, 7, 7], "the ends differ")
    await _read(stage, 0, 7)
    stage.in_order(
        r"broker-2\..*t-0: starts anew at 10, where leader 1 begins",
        "broker-3 .*t-0: leads, epoch",
        r"broker-2\..*t-0: ahead of leader 3, cut to its end 5",
        r"broker-1\..*t-0: truncating from 10 to 5",
    )


SCENARIOS = (
    Scenario("stopped-below-start", "DeleteRecords, and a stopped follower", THREE,
             stopped_below_start),
    Scenario("cut-off-below-start", "DeleteRecords, and one that is cut off", QUICK,
             cut_off_below_start),
    Scenario("within-the-log", "DeleteRecords within what a follower has", THREE, within_the_log),
    Scenario("deleted-while-away", "DeleteRecords up to the end of a leader that was cut off",
             THREE, deleted_while_away),
    Scenario("retention-passes-by", "retention takes more than a stopped follower has",
             Shape(brokers=3, min_isr=2, lag_ms=10_000, retention_check_ms=2000),
             retention_passes_by),
    Scenario("above-the-end", "an unclean leader that ends below where others begin", ALONE,
             above_the_end),
)  # fmt: skip
