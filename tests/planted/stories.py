"""The planted histories themselves: each bends one thing.  See `story`."""

from __future__ import annotations

from tests.planted import groups, share, transactions
from tests.planted.story import PLANTS, Story, finish, plant, sound, v

__all__ = ["PLANTS", "finish", "groups", "share", "transactions", "sound"]


# --- clean: runs that a careless check would flag


@plant()
def clean(s: Story) -> None:
    """A sound run."""


@plant()
def clean_unknown_outcomes(s: Story) -> None:
    """Time-outs: one record is there and one is not.  Both outcomes are unknown, and right."""
    s.unknown("producer-0", v(s, "there"))
    s.store(v(s, "there"), 6)
    s.unknown("producer-1", v(s, "nowhere"))
    s.line(
        "producer-1", "send", "invoke", op=s.operation(), value=v(s, "open"), key="k", partition=0
    )


@plant()
def clean_certain_failure(s: Story) -> None:
    """A send that failed for certain and is nowhere."""
    s.end(s.invoke("producer-0", v(s, "refused")), "fail", error="MESSAGE_TOO_LARGE")


@plant()
def clean_holes(s: Story) -> None:
    """Offsets 6 to 8 hold nothing that a client sees (control batches): stepping over them is no
    skip."""
    s.send("producer-0", v(s, 9), 9)
    s.poll("consumer", *s.values(9), leader_epoch=2)


@plant(end=None)
def clean_deleted_by_retention(s: Story) -> None:
    """The log starts at 3 by the end: records below it that were acknowledged and read are gone by
    right."""
    for offset in range(3):
        del s.log[0][offset]
    s.list_offsets("final", "earliest", 3)
    s.read_to_the_end()
    s.spark_reads()


@plant()
def clean_assigned_again(s: Story) -> None:
    """A consumer that is assigned an earlier, then a later offset goes back and jumps by right."""
    s.assign("consumer", 0)
    s.poll("consumer", *s.values(0, 1))
    s.assign("consumer", 5)
    s.poll("consumer", *s.values(5))


@plant()
def clean_overlapping_sends(s: Story) -> None:
    """Two producers' sends overlap in time: either order of the offsets is right."""
    first = s.invoke("producer-0", v(s, "a"))
    second = s.invoke("producer-1", v(s, "b"))
    s.end(second, "ok", 6)
    s.end(first, "ok", 7)
    s.store(v(s, "b"), 6)
    s.store(v(s, "a"), 7)


@plant()
def clean_duplicate_recognised(s: Story) -> None:
    """A broker recognised a retry, and the client was acknowledged without an offset (-1)."""
    s.end(s.invoke("producer-0", v(s, "again")), "ok", -1)
    s.store(v(s, "again"), 6)


@plant()
def clean_two_partitions(s: Story) -> None:
    """Offsets of one partition say nothing about another's."""
    s.send("producer-0", v(s, "p1-0"), 0, partition=1)
    s.send("producer-0", v(s, "p1-1"), 1, partition=1)
    s.assign("consumer", 0, partition=1)
    s.poll("consumer", *s.values(0, 1, partition=1), partition=1)
    s.list_offsets("consumer", "latest", 2, partition=1, leader_epoch=0)


@plant(apart="C2")
def copies_without_idempotence(s: Story) -> None:
    """A retry without idempotence left two copies: a number, no violation."""
    s.send("plain", v(s, "twice"), 7, idempotent=False)
    s.store(v(s, "twice"), 6)


@plant(apart="C2")
def copies_of_two_attempts(s: Story) -> None:
    """The application sent the value again after a time-out: two copies by right."""
    s.unknown("producer-0", v(s, "twice"))
    s.store(v(s, "twice"), 6)
    s.send("producer-1", v(s, "twice"), 7)


def copies_of_epochs(s: Story, client: str, epochs: tuple[int, int]) -> None:
    """An idempotent producer's record stands twice, under these epochs of its producer."""
    sound(s)
    s.send("producer-0", v(s, "twice"), 7, client=client)
    s.store(v(s, "twice"), 6)
    s.segments = [
        {"broker": b, "topic": s.topic, "partition": 0, "offset": offset, "leader_epoch": 1,
         "value": v(s, "twice"), "producer_epoch": epoch}
        for b in (1, 2) for offset, epoch in zip((6, 7), epochs, strict=True)
    ]  # fmt: skip
    finish(s)


def copies_that_were_read(s: Story, epochs: tuple[int, int]) -> None:
    """A record of librdkafka stands twice, read under these epochs of its producer."""
    sound(s)
    s.send("producer-0", v(s, "twice"), 7, client="confluent-kafka")
    s.store(v(s, "twice"), 6)
    for offset, epoch in zip((6, 7), epochs, strict=True):
        s.poll("consumer", *s.values(offset), producer_epoch=epoch, leader_epoch=1)


@plant(apart="C2", begin=None, end=None)
def copies_of_a_raised_epoch(s: Story) -> None:
    """librdkafka raised its epoch, and sent again a batch that had been stored."""
    copies_of_epochs(s, "confluent-kafka", (0, 1))


@plant("C2", begin=None, end=None)
def copies_of_one_epoch(s: Story) -> None:
    """The broker has to recognise a repetition under the same epoch."""
    copies_of_epochs(s, "confluent-kafka", (1, 1))


@plant(apart="C2", begin=None)
def copies_of_a_raised_epoch_that_a_client_read(s: Story) -> None:
    """The same, told by the reads of a client that sees whole batches, where no disk is at hand."""
    copies_that_were_read(s, (0, 1))


@plant("C2", begin=None)
def copies_of_one_epoch_that_a_client_read(s: Story) -> None:
    """The broker has to recognise a repetition under the same epoch, whoever tells of it."""
    copies_that_were_read(s, (1, 1))


@plant("C2", begin=None, end=None)
def copies_of_another_clients_epochs(s: Story) -> None:
    """Another client has to know what was stored before it raises its epoch."""
    copies_of_epochs(s, "kafka-python", (0, 1))


@plant(apart="C10")
def reordered_without_idempotence(s: Story) -> None:
    """Five in flight, no idempotence, a retry: the order may change."""
    first = s.invoke("plain", v(s, "a"), idempotent=False)
    second = s.invoke("plain", v(s, "b"), idempotent=False)
    s.end(first, "ok", 7)
    s.end(second, "ok", 6)
    s.store(v(s, "b"), 6)
    s.store(v(s, "a"), 7)


@plant(apart="C1 C3 C4 C7 C12", begin=None)
def expected_loss_of_acks_1(s: Story) -> None:
    """acks=1 on a topic that may lose: the leader died, and offset 6 was given away again."""
    s.expect_loss = True
    sound(s)
    s.send("lossy", v(s, "lost"), 6, stored=False, acks=1, idempotent=False)
    s.send("lossy", v(s, "later"), 6, acks=1, idempotent=False)


@plant(apart="C1 C3 C4 C7 C15", begin=None)
def expected_loss_of_an_unclean_election(s: Story) -> None:
    """Unclean elections were allowed: even a record that was read may vanish."""
    s.unclean = True
    sound(s)
    s.send("producer-0", v(s, "lost"), 6, stored=False)
    s.poll("consumer", (6, v(s, "lost")))
    s.unknown("producer-1", v(s, "instead"))
    s.store(v(s, "instead"), 6)
    s.send("producer-1", v(s, "unseen"), 7, stored=False)
    s.send("producer-1", v(s, "end"), 8)


# --- one violation each


@plant("C1", end=None)
def two_values_at_one_offset(s: Story) -> None:
    """Two full reads disagree about offset 6."""
    s.unknown("producer-0", v(s, "a"))
    s.unknown("producer-1", v(s, "b"))
    s.store(v(s, "a"), 6)
    s.read_to_the_end()
    s.store(v(s, "b"), 6)
    s.spark_reads()


@plant("C2")
def idempotent_copies(s: Story) -> None:
    """An idempotent producer's record stands twice."""
    s.send("producer-0", v(s, "twice"), 6)
    s.store(v(s, "twice"), 7)


@plant("C2")
def acknowledged_elsewhere(s: Story) -> None:
    """Acknowledged at offset 6, which holds nothing; the record stands at 7."""
    s.send("producer-0", v(s, "moved"), 6, stored=False)
    s.store(v(s, "moved"), 7)


@plant("C3")
def half_an_operation(s: Story) -> None:
    """One operation of two records and unknown outcome: one was read, one never."""
    one = s.invoke("producer-0", v(s, "half"))
    other = {**one, "value": v(s, "other half")}
    s.line("producer-0", "send", "invoke", **{k: x for k, x in other.items() if k != "process"})
    s.end(one, "info")
    s.end(other, "info")
    s.store(v(s, "half"), 6)


@plant("C3 C4")
def lost_in_the_middle(s: Story) -> None:
    """A record was acknowledged at 6, and every reader goes from 5 to 7."""
    s.send("producer-0", v(s, "lost"), 6, stored=False)
    s.send("producer-1", v(s, 7), 7)


@plant("C1 C3 C4 C7 C11")
def lost_and_replaced(s: Story) -> None:
    """The classic: acknowledged at 6, truncated on failover, and 6 given to another record of
    unknown outcome."""
    s.send("producer-0", v(s, "lost"), 6, stored=False)
    s.unknown("producer-1", v(s, "instead"))
    s.store(v(s, "instead"), 6)


@plant("C4")
def lost_at_the_end(s: Story) -> None:
    """The last acknowledged record is in no read."""
    s.send("producer-0", v(s, "lost"), 6, stored=False)


@plant("C4")
def lost_without_an_offset(s: Story) -> None:
    """Acknowledged as a duplicate (offset unknown), and nowhere."""
    s.end(s.invoke("producer-0", v(s, "lost")), "ok", -1)


@plant("C4", apart="C5")
def lost_on_the_way(s: Story) -> None:
    """A record is in two brokers' segments, but no reader gets it; another one is in none."""
    s.send("producer-0", v(s, "hidden"), 6, stored=False)
    s.send("producer-0", v(s, "gone"), 7, stored=False)
    record = {"topic": s.topic, "partition": 0, "offset": 6, "value": v(s, "hidden"), "key": "k"}
    s.segments = [{"broker": b, "leader_epoch": 1, **record} for b in (1, 2)]


@plant("C6")
def failed_but_read(s: Story) -> None:
    """The answer proved that nothing was appended, and yet it was read."""
    s.end(s.invoke("producer-0", v(s, "refused")), "fail", error="NOT_ENOUGH_REPLICAS")
    s.store(v(s, "refused"), 6)


@plant("C7")
def phantom(s: Story) -> None:
    """A record that no client sent."""
    s.store(v(s, "who?"), 6)


@plant("C7")
def another_key(s: Story) -> None:
    """The key changed on the way."""
    s.send("producer-0", v(s, 6), 6)
    s.store(v(s, 6), 6, key="other")


@plant("C7")
def another_partition(s: Story) -> None:
    """Sent to partition 0, read in partition 1."""
    s.unknown("producer-0", v(s, "stray"), partition=0)
    s.store(v(s, "stray"), 0, partition=1)


@plant("C1 C3 C4 C7")
def damaged(s: Story) -> None:
    """A record came back with a flipped bit: its own value is lost, and another is there."""
    s.send("producer-0", v(s, "whole"), 6, stored=False)
    s.store(v(s, "whome"), 6)


@plant("C8", begin=None, end=None)
def skipped(s: Story) -> None:
    """A consumer jumps over offset 4, which Spark reads."""
    s.assign("consumer")
    for offset in range(6):
        s.send("producer-0", v(s, offset), offset)
    s.poll("consumer", *s.values(0, 1, 2, 3, 5))
    s.read_to_the_end(offsets=[])
    s.spark_reads()


@plant("C8 C14")
def skipped_by_one_of_two(s: Story) -> None:
    """A consumer jumps over offset 6, and another one does not: they disagree on what follows 5."""
    s.send("producer-0", v(s, 6), 6)
    s.send("producer-0", v(s, 7), 7)
    s.poll("consumer", *s.values(7))


@plant("C9")
def went_back(s: Story) -> None:
    """A consumer gets offset 4 again after 5."""
    s.poll("consumer", *s.values(4, 5))


@plant("C10")
def reordered(s: Story) -> None:
    """An idempotent producer's second record stands before its first."""
    first = s.invoke("producer-0", v(s, "a"))
    second = s.invoke("producer-0", v(s, "b"))
    s.end(first, "ok", 7)
    s.end(second, "ok", 6)
    s.store(v(s, "b"), 6)
    s.store(v(s, "a"), 7)


@plant("C11")
def before_its_time(s: Story) -> None:
    """Sent after offset 7 had been acknowledged, and put at 6."""
    s.send("producer-0", v(s, "a"), 7)
    s.send("producer-2", v(s, "b"), 6)


@plant("C11")
def before_its_time_by_a_read(s: Story) -> None:
    """The same where the later send timed out, and only a read shows its place."""
    s.send("producer-0", v(s, "a"), 7)
    s.unknown("producer-2", v(s, "b"))
    s.store(v(s, "b"), 6)


@plant("C1 C7 C12", apart="C2")
def one_offset_acknowledged_twice(s: Story) -> None:
    """Two records were acknowledged at offset 6; one of them stands at 7."""
    one = s.invoke("producer-0", v(s, "a"))
    other = s.invoke("plain", v(s, "b"), idempotent=False)
    s.end(one, "ok", 6)
    s.end(other, "ok", 6)
    s.store(v(s, "a"), 6)
    s.store(v(s, "b"), 7)


@plant("C13")
def stale_end(s: Story) -> None:
    """A leader of epoch 1 says that the log ends at 4, after offset 5 of epoch 1 was read."""
    s.list_offsets("consumer", "latest", 4, leader_epoch=1)


@plant(apart="C13")
def stale_end_of_a_fenced_leader(s: Story) -> None:
    """The leader of epoch 0 was fenced and does not know what epoch 1 appended."""
    s.list_offsets("consumer", "latest", 3, leader_epoch=0)


@plant("C13")
def stale_end_of_the_newest_leader(s: Story) -> None:
    """The last elected broker gives a lower end than was known: a new leader's HW went back."""
    s.elected(2, leader_epoch=2)
    s.list_offsets("consumer", "latest", 4, leader_epoch=2)


@plant(apart="C13")
def stale_end_of_a_leader_that_was_replaced(s: Story) -> None:
    """The leader of epoch 1 appended 5 and never learned that its followers had it; epoch 2
    has exposed it."""
    s.elected(2, leader_epoch=2)
    s.list_offsets("consumer", "latest", 5, leader_epoch=1)
    s.elected(3, leader_epoch=3)


@plant("C14")
def epochs_fall(s: Story) -> None:
    """The record at 6 is of an older leader epoch than the one at 5."""
    s.send("producer-0", v(s, 6), 6)
    s.poll("consumer", *s.values(6), leader_epoch=0)


@plant("C14")
def two_epochs_at_one_offset(s: Story) -> None:
    """Two consumers got the record at 5 with different leader epochs."""
    s.assign("consumer-1", 5)
    s.poll("consumer-1", *s.values(5), leader_epoch=2)


@plant("C15")
def vanished(s: Story) -> None:
    """Served above the high watermark, then truncated: the consumer had it, the end does not."""
    s.unknown("producer-0", v(s, "seen"))
    s.poll("consumer", (6, v(s, "seen")))


@plant("C1 C15")
def vanished_and_replaced(s: Story) -> None:
    """The same, and its offset was given to another record."""
    s.unknown("producer-0", v(s, "seen"))
    s.poll("consumer", (6, v(s, "seen")))
    s.unknown("producer-1", v(s, "instead"))
    s.store(v(s, "instead"), 6)


@plant("C15", begin=None)
def vanished_where_losses_are_allowed(s: Story) -> None:
    """acks=1 excuses a lost acknowledgement, not a read that vanished."""
    s.expect_loss = True
    sound(s)
    s.unknown("lossy", v(s, "seen"), acks=1, idempotent=False)
    s.poll("consumer", (6, v(s, "seen")))
