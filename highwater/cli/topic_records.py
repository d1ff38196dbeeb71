"""`highwater topic produce` and `consume`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from highwater.cli.error_lines import complain
from highwater.cli.topic_where import Where, where_options

if TYPE_CHECKING:
    from highwater.kafka.client.metadata import Cluster


@click.command()
@click.argument("name")
@click.option("--partition", type=click.IntRange(0), help="[default: by the key, or in turn]")
@click.option(
    "--key", "separator", metavar="SEPARATOR", help="What stands between key and value in a line."
)
@where_options
def produce(where: Where, name: str, partition: int | None, separator: str | None) -> None:
    """Write each line of the input as a record, with acks=all, and say its offset.

    Exit code 1 where one was not acknowledged.

    \b
    Examples:
      seq 5 | highwater topic produce orders
      echo ada=7 | highwater topic produce orders --key =
    """

    async def work(cluster: Cluster) -> None:
        import trio

        from highwater.kafka.client.producer import Outcome, Producer, Receipt
        from highwater.kafka.client.topic_admin import topic as find

        count = len((await find(cluster, name)).partitions)
        if partition is not None and partition >= count:
            raise click.ClickException(_no_partition(name, partition, count))
        producer = Producer(cluster, delivery_timeout_s=30)
        failed = 0

        async def tell(receipts: trio.MemoryReceiveChannel[tuple[int, Receipt]]) -> None:
            nonlocal failed
            async for number, receipt in receipts:
                done = await receipt.wait()
                if done.outcome is Outcome.ACKED:
                    where.say(
                        f"{done.tp} offset {done.offset}",
                        partition=done.tp.partition,
                        offset=done.offset,
                    )
                else:
                    failed += 1
                    complain(f"line {number} is {done.outcome.name.lower()}: {done.detail}")

        read = sys.stdin.buffer.readline
        sending, told = trio.open_memory_channel[tuple[int, Receipt]](1000)
        async with trio.open_nursery() as nursery:
            await nursery.start(producer.run)
            async with trio.open_nursery() as telling:
                telling.start_soon(tell, told)
                async with sending:
                    number = 0
                    while line := await trio.to_thread.run_sync(read, abandon_on_cancel=True):
                        number += 1
                        key, value = _split(line.rstrip(b"\r\n"), separator)
                        if value is None:
                            failed += 1
                            complain(f"line {number} has no {separator!r}: it is not sent")
                            continue
                        receipt = await producer.send(name, value, key=key, partition=partition)
                        await sending.send((number, receipt))
            nursery.cancel_scope.cancel()
        if failed:
            raise SystemExit(1)

    where.run(work)


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes | None]:
    """Key and value; no value where the line lacks the separator."""
    if separator is None:
        return None, line
    key, sign, value = line.partition(separator.encode())
    return (key, value) if sign else (None, None)


@click.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1), help="End after so many records.")
@click.option(
    "--within",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End after this time; exit code 1 where --count has not come by then.",
)
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="beginning|end|OFFSET",
    help="Where to begin, in each partition.",
)
@click.option("--partition", type=click.IntRange(0), help="[default: all]")
@click.option("--read-committed", is_flag=True, help="Leave out aborted transactions.")
@where_options
def consume(
    where: Where,
    name: str,
    count: int | None,
    within: float | None,
    start: str,
    partition: int | None,
    read_committed: bool,
) -> None:
    """Print the records of a topic, until --count, --within or Ctrl-C.

    \b
    Examples:
      highwater topic consume orders --count 5 --within 10
      highwater topic consume orders --from end --json
    """
    if start not in ("beginning", "end") and not start.isdigit():
        raise click.UsageError(f"--from {start}: say beginning, end, or an offset")

    async def work(cluster: Cluster) -> None:
        import trio

        from highwater.kafka.client.consumer import EARLIEST, LATEST, Consumer
        from highwater.kafka.client.topic_admin import topic as find
        from highwater.kafka.types import TopicPartition

        numbers = [p.partition for p in (await find(cluster, name)).partitions]
        if partition is not None and partition not in numbers:
            raise click.ClickException(
                f"{name} has no partition {partition}; it has {len(numbers)}"
            )
        tps = [TopicPartition(name, n) for n in numbers if partition in (None, n)]
        at = int(start) if start.isdigit() else None
        reset = None if at is not None else EARLIEST if start == "beginning" else LATEST
        consumer = Consumer(cluster, read_committed=read_committed, reset=reset)
        consumer.assign(dict.fromkeys(tps, at))
        seen = 0
        with trio.move_on_after(float("inf") if within is None else within):
            while count is None or seen < count:
                for fetch in await consumer.poll(1.0):
                    for record in fetch.records:
                        if count is None or seen < count:
                            _print(where, fetch.tp.partition, record)
                            seen += 1
        if count is not None and seen < count:
            complain(f"{seen} of {count} records came within {within:g} s")
            raise SystemExit(1)

    where.run(work)


def _no_partition(name: str, partition: int, count: int) -> str:
    return f"{name} has no partition {partition}: they are 0 to {count - 1}"


def _print(where: Where, partition: int, record: Any) -> None:
    key, value = _text(record.key), _text(record.value)
    where.say(
        "null" if value is None else value if key is None else f"{key}\t{value}",
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        value=value,
        headers=[[name, _text(content)] for name, content in record.headers],
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
