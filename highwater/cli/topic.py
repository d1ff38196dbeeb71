"""`highwater topic`: topics and their records, by Highwater's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from highwater.cli.option_values import named_values
from highwater.cli.topic_records import consume, produce
from highwater.cli.topic_where import Where, where_options

if TYPE_CHECKING:
    from highwater.kafka.client.metadata import Cluster
    from highwater.kafka.client.topic_admin import Topic


@click.group()
def topic() -> None:
    """Create, list, describe and delete topics; write and read their records.

    \b
    Examples:
      highwater topic create orders --partitions 3
      seq 5 | highwater topic produce orders
      highwater topic consume orders --count 5 --within 10
    """


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also those of the cluster itself.")
@where_options
def list_(where: Where, internal: bool) -> None:
    """List the topics.

    \b
    Example:
      highwater topic list --bootstrap kafka:9092
    """

    async def work(cluster: Cluster) -> None:
        from highwater.kafka.client.topic_admin import topics

        for found in await topics(cluster):
            if internal or not found.internal:
                count = len(found.partitions)
                where.say(f"{found.name}  {count} partitions", name=found.name, partitions=count)

    where.run(work)


@topic.command()
@click.argument("name")
@where_options
def describe(where: Where, name: str) -> None:
    """Show a topic's partitions (leaders, ISR, offsets), and what is set at it.

    \b
    Example:
      highwater topic describe orders
    """

    async def work(cluster: Cluster) -> None:
        from highwater.kafka.client.consumer import EARLIEST, LATEST, Consumer
        from highwater.kafka.client.topic_admin import settings
        from highwater.kafka.client.topic_admin import topic as find
        from highwater.kafka.types import TopicPartition

        found = await find(cluster, name)
        tps = [TopicPartition(name, p.partition) for p in found.partitions if p.leader >= 0]
        consumer = Consumer(cluster)
        starts = await consumer.offsets(tps, EARLIEST)
        ends = await consumer.offsets(tps, LATEST)
        for p in found.partitions:
            tp = TopicPartition(name, p.partition)
            start, end = starts.get(tp, (-1, -1))[0], ends.get(tp, (-1, -1))[0]
            leader = f"leader {p.leader} (epoch {p.leader_epoch})" if tp in ends else "no leader"
            where.say(
                f"{tp}  {leader}  ISR {_list(p.isr)} of {_list(p.replicas)}"
                + (f"  offsets {start} to {end}" if tp in ends else ""),
                **p._asdict(),
                start=start,
                end=end,
            )
        for key, value in sorted((await settings(cluster, name)).items()):
            where.say(f"{key}={value}", setting=key, value=value)

    where.run(work)


def _list(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers)) or "nobody"


@topic.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="[default: the cluster's]")
@click.option("--replication-factor", type=click.IntRange(1), help="[default: the cluster's]")
@click.option(
    "--set",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="A property of the topic; may be given more than once.",
)
@where_options
def create(
    where: Where,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    properties: dict[str, str],
) -> None:
    """Create a topic; returns when each partition has a leader.

    \b
    Example:
      highwater topic create orders --partitions 3 --set min.insync.replicas=2
    """

    async def work(cluster: Cluster) -> None:
        from highwater.kafka.client.topic_admin import create

        made = await create(
            cluster,
            name,
            partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            config=properties,
        )
        _say_topic(where, made)

    where.run(work)


def _say_topic(where: Where, made: Topic) -> None:
    count, replicas = len(made.partitions), len(made.partitions[0].replicas)
    where.say(
        f"{made.name}: {count} partitions, {replicas} replicas each",
        name=made.name,
        partitions=count,
        replication_factor=replicas,
    )


@topic.command()
@click.argument("name")
@where_options
def delete(where: Where, name: str) -> None:
    """Delete a topic with all its records.

    \b
    Example:
      highwater topic delete orders
    """

    async def work(cluster: Cluster) -> None:
        from highwater.kafka.client.topic_admin import delete
        from highwater.kafka.client.topic_admin import topic as find

        await find(cluster, name)
        await delete(cluster, name)
        where.say(f"{name} is deleted", name=name)

    where.run(work)


topic.add_command(produce)
topic.add_command(consume)
