"""The time at which a Fetch is answered: at once, or after its whole max_wait_ms (`Case.timed`).

The cases: what counts towards min_bytes, at limits, ends of segments and the LSO; and the events
that end the wait of a Fetch.  The batches are all of one size.
"""

from __future__ import annotations

from typing import Any

from highwater.kafka.wire.records import TRANSACTIONAL, Record, build_batch
from tests.integration.oracle import script_admin
from tests.integration.oracle.asking import Case
from tests.integration.oracle.script_records import FETCH, METADATA, NOBODY, PRODUCE, T0, produce
from tests.integration.oracle.script_transactions import Facts, Round, keep

BATCH = bytes(build_batch([Record(None, b"v" * 100, T0)]))
SIZE = len(BATCH)
MAX_WAIT_MS = 1000
Place = tuple[str, int, int]
"""Topic, partition and offset."""


def fetch(
    *places: Place, min_bytes: int, of_partition: int = 1 << 20, of_all: int = 1 << 20, **more: Any
) -> dict[str, Any]:
    topics = [
        {
            "topic": topic,
            "partitions": [
                {
                    "partition": partition,
                    "fetch_offset": offset,
                    "partition_max_bytes": of_partition,
                }
            ],
        }
        for topic, partition, offset in places
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": MAX_WAIT_MS,
        "min_bytes": min_bytes,
        "max_bytes": of_all,
        "session_epoch": -1,
        "topics": topics,
        **more,
    }


def timed(name: str, body: dict[str, Any], meanwhile: Case | None = None) -> Case:
    return Case(f"time: {name}", FETCH, body, versions=(11, 11), timed=True, meanwhile=meanwhile)


def append(topic: str, partition: int, count: int = 1) -> list[Case]:
    body = produce(BATCH, topic, partition)
    return [Case("a batch", PRODUCE, body, versions=(7, 7))] * count


def set_up() -> list[Case]:
    new, on_one = script_admin.new_topic, {0: [1], 1: [1]}
    topics = [
        new("whole", -1, -1, assigned=on_one),
        new("rolled", -1, -1, assigned=on_one, configs={"segment.bytes": str(2 * SIZE)}),
        new("open", -1, -1, assigned=on_one),
        new("elsewhere", -1, -1, assigned={0: [2]}),
    ]
    names = {"topics": [{"name": t["name"]} for t in topics]}

    def led(answer: Any) -> bool:
        places = [p for t in answer["topics"] for p in t["partitions"]]
        return len(places) == 7 and all(p["leader_id"] > 0 for p in places)

    return [
        Case("times' topics", 19, script_admin.create(*topics), "controller", (4, 4)),
        Case("their leader", METADATA, names, "1", (5, 5), until=led), *append("whole", 0, 3),
        *append("whole", 1, 3), *append("rolled", 0, 3), *append("open", 0, 2),
    ]  # fmt: skip


def limits() -> list[Case]:
    one, other, end = ("whole", 0, 0), ("whole", 1, 0), ("whole", 0, 3)
    cut = 2 * SIZE + 1
    both = 2 * (SIZE + 1)
    return [
        timed("as much as there is", fetch(one, min_bytes=3 * SIZE)),
        timed("more than there is", fetch(one, min_bytes=3 * SIZE + 1)),
        timed("nothing is there", fetch(end, min_bytes=1)),
        timed("nothing is asked for", fetch(end, min_bytes=0)),
        timed("cut where min_bytes are", fetch(one, min_bytes=cut, of_partition=cut)),
        timed("cut below min_bytes", fetch(one, min_bytes=cut + 1, of_partition=cut)),
        timed("less than the cut", fetch(("whole", 0, 1), min_bytes=cut, of_partition=cut)),
        timed("a large first batch", fetch(one, min_bytes=SIZE, of_partition=10)),
        timed("more than it", fetch(one, min_bytes=SIZE + 1, of_partition=10)),
        timed("the answer's limit, cut", fetch(one, min_bytes=9 * SIZE, of_all=cut)),
        timed("the answer's limit is above", fetch(one, min_bytes=9 * SIZE, of_all=3 * SIZE + 1)),
        timed(
            "two partitions, both cut",
            fetch(one, other, min_bytes=both, of_partition=SIZE + 1),
        ),
        timed(
            "more than two, both cut",
            fetch(one, other, min_bytes=both + 1, of_partition=SIZE + 1),
        ),
        timed(
            "no room for the second, cut",
            fetch(("whole", 0, 2), other, min_bytes=SIZE + 9, of_all=SIZE + 9),
        ),
        timed("one is elsewhere", fetch(one, ("elsewhere", 0, 0), min_bytes=9 * SIZE)),
        timed("one is unknown", fetch(one, (NOBODY, 0, 0), min_bytes=9 * SIZE)),
    ]


def segments() -> list[Case]:
    """The first segment holds two batches, the second one, and in the end three begin a third."""
    first, within, last, empty = (("rolled", 0, n) for n in (0, 1, 2, 4))
    none, much = ("rolled", 1, 0), 9 * SIZE
    (one_more,) = append("rolled", 0)
    return [
        timed("an older segment", fetch(first, min_bytes=much)),
        timed("within an older segment", fetch(within, min_bytes=much)),
        timed("beside an empty one", fetch(none, within, min_bytes=much)),
        timed("a byte of an older one", fetch(first, min_bytes=much, of_partition=1)),
        timed("the last segment", fetch(last, min_bytes=much)),
        timed("the last segment grows", fetch(last, min_bytes=much), one_more),
        timed("a new segment begins", fetch(last, min_bytes=much), one_more),
        timed("in the new segment", fetch(empty, min_bytes=much)),
        *append("rolled", 0),
        timed(
            "at the end, a new segment begins", fetch(("rolled", 0, 6), min_bytes=much), one_more
        ),
        timed("and the segment grows", fetch(("rolled", 0, 7), min_bytes=much), one_more),
    ]


def arrivals() -> list[Case]:
    (one_more,) = append("whole", 0)

    def ends(number: int) -> tuple[Place, Place]:
        return ("whole", 1, 3), ("whole", 0, number)

    return [
        timed("enough comes", fetch(*ends(3), min_bytes=SIZE), one_more),
        timed("too little comes", fetch(*ends(4), min_bytes=SIZE + 1), one_more),
        timed("with what was there", fetch(*ends(4), min_bytes=2 * SIZE), one_more),
        timed("cut as it comes", fetch(("whole", 0, 6), min_bytes=99, of_partition=99), one_more),
        timed(
            "a large first batch comes",
            fetch(("whole", 0, 7), min_bytes=SIZE, of_partition=10),
            one_more,
        ),
    ]


def transactions() -> list[Case]:
    """Two batches, one of an open transaction, and one more."""
    producer = Round(len("times"))

    def send(_: int, facts: Facts) -> dict[str, Any]:
        pid, epoch = producer.who(facts)
        records = build_batch(
            [Record(None, b"v" * 100, T0)], producer_id=pid, producer_epoch=epoch, base_sequence=0,
            attributes=TRANSACTIONAL,
        )  # fmt: skip
        return produce(bytes(records), "open", 0, transactional_id=producer.id)

    def committed(offset: int, min_bytes: int, **more: Any) -> dict[str, Any]:
        return fetch(("open", 0, offset), min_bytes=min_bytes, isolation_level=1, **more)

    cut, begun = SIZE + 1, {"until": lambda a: a["error_code"] == 0}
    return [
        producer.init("for the times", 3, keep=keep(producer.number), **begun),
        producer.add("for the times", 3, topics={"open": [0]}),
        Case("of a transaction", PRODUCE, send, versions=(7, 7)),
        *append("open", 0),
        timed("up to the LSO", committed(0, 2 * SIZE)),
        timed("above the LSO", committed(0, 2 * SIZE + 1)),
        timed("read_uncommitted", fetch(("open", 0, 0), min_bytes=4 * SIZE)),
        timed("cut below the LSO", committed(0, cut, of_partition=cut)),
        timed("from the LSO", committed(2, 1)),
        timed("from beyond the LSO", committed(3, 1)),
        timed("the LSO moves", committed(2, SIZE), producer.end("for the times", 3, True)),
    ]


def cases() -> list[Case]:
    return [*set_up(), *limits(), *segments(), *arrivals(), *transactions()]
