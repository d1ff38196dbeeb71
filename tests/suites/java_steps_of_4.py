"""Steps of Kafka's command-line tools that are new in 4: groups of the consumer protocol, share
groups, groups' properties, features, and topics' ids.  `java_suites` says how a step is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.suites.java_suites import ADMIN, TOOLS, Step, run_steps
from tests.suites.result import Result
from tests.suites.running import Suite

JAVA_TOOLS_OF_4 = "4.2.0"
_AT = "--bootstrap-server {at} "
_MEMBERS_STAY_MS = 40000
"""Long enough for the steps that look at a group while it has a member."""
_LEAVES = 40
"""Tries, a second apart, of the first step that needs a group without members."""


def java_tools_of_4(suite: Suite, left_out: str, source: Path | None, work: Path) -> list[Result]:
    return run_steps(steps(), suite, left_out, work)


def steps() -> Iterator[Step]:
    for about in (_topics, _consumer_groups, _share_groups, _share_clients, _features):
        for step in about():
            yield replace(step, version=JAVA_TOOLS_OF_4)


def _topics() -> Iterator[Step]:
    topics = TOOLS + "TopicCommand"
    words = f"{_AT}--create --topic new --partitions 3 --replication-factor 3"
    yield Step("topics: create", topics, words, "Created topic new")
    words = f"{_AT}--describe --topic new"
    yield Step("topics: an id", topics, words, r"TopicId: [\w-]{22}\s+PartitionCount: 3")
    lines = "".join(f"k{n}:value{n}\n" for n in range(60))
    words = f"{_AT}--topic new --reader-property parse.key=true --reader-property key.separator=:"
    yield Step("console producer", TOOLS + "ConsoleProducer", words, "^>*$", stdin=lines)


def _consumer_groups() -> Iterator[Step]:
    consumer = TOOLS + "consumer.ConsoleConsumer"
    groups = TOOLS + "consumer.group.ConsumerGroupCommand"
    of, protocol = "--group modern", "--command-property group.protocol=consumer"
    yield Step(
        "console consumer: the consumer protocol", consumer,
        f"{_AT}--topic new {of} {protocol} --from-beginning --max-messages 60 --timeout-ms 20000",
        r"value59\s[^$]*Processed a total of 60 messages",
    )  # fmt: skip
    yield Step(
        "console consumer: a member that stays", consumer,
        f"{_AT}--topic new {of} {protocol} --timeout-ms {_MEMBERS_STAY_MS}",
        "Processed a total of 0 messages", beside=True,
    )  # fmt: skip
    described = f"{_AT}--describe {of}"
    yield Step(
        "consumer groups: state", groups, f"{described} --state --verbose",
        r"modern\s+[\w.]+:\d+\s+\(\d\)\s+uniform\s+Stable\s+(\d+)\s+\1\s+1$", tries=20,
    )  # fmt: skip
    yield Step(
        "consumer groups: members", groups, f"{described} --members --verbose",
        r"modern\s+[\w-]{22}\s+/127.0.0.1\s+console-consumer\s+3\s+(\d+)\s+new:0,1,2\s+\1\s+new:0,1,2",
    )  # fmt: skip
    yield Step(
        "consumer groups: offsets", groups, described,
        r"modern\s+new\s+2\s+(\d+)\s+\1\s+0\s+[\w-]{22}\s",
    )  # fmt: skip
    words = f"{_AT}--list --type consumer --state"
    yield Step("consumer groups: list by type", groups, words, r"modern\s+Consumer\s+Stable")
    words = f"{_AT}--list --type classic"
    yield Step("consumer groups: list classic ones", groups, words, r"^GROUP\s+TYPE$")
    words = f"{_AT}--list"
    yield Step("groups: list", TOOLS + "GroupsCommand", words, r"modern\s+Consumer\s+consumer")
    reset = f"{_AT}{of} --reset-offsets --topic new:1"
    yield Step(
        "consumer groups: reset refused", groups, f"{reset} --to-earliest --execute",
        "Assignments can only be reset if the group 'modern' is inactive",
    )  # fmt: skip
    words = f"{_AT}--delete {of}"
    yield Step("consumer groups: delete refused", groups, words, "GroupNotEmptyException")
    words = f"{described} --state"
    yield Step("consumer groups: empty", groups, words, r"modern\s.*\sEmpty\s+0", tries=_LEAVES)
    yield Step(
        "consumer groups: reset", groups, f"{reset} --to-earliest --execute",
        r"modern\s+new\s+1\s+0",
    )  # fmt: skip
    words = f"{_AT}{of} --delete-offsets --topic new:1"
    yield Step("consumer groups: delete offsets", groups, words, r"new\s+1\s+Successful")
    words = f"{_AT}--delete {of}"
    yield Step("consumer groups: delete", groups, words, r"\('modern'\) was successful")
    yield Step(
        "verifiable consumer: the consumer protocol", TOOLS + "VerifiableConsumer",
        f"{_AT}--topic new --group-id verifiers --max-messages 60 --reset-policy earliest"
        " --group-protocol consumer",
        '"name":"offsets_committed".*"success":true[^$]*"name":"shutdown_complete"',
    )  # fmt: skip


def _share_groups() -> Iterator[Step]:
    groups, consumer = TOOLS + "consumer.group.ShareGroupCommand", "consumer.ConsoleShareConsumer"
    of = "--group sharers"
    yield from _properties("sharers")
    yield Step(
        "console share consumer", TOOLS + consumer,
        f"{_AT}--topic new {of} --max-messages 60 --timeout-ms 20000",
        r"value59\s[^$]*Processed a total of 60 messages",
    )  # fmt: skip
    yield Step(
        "console share consumer: a member that stays", TOOLS + consumer,
        f"{_AT}--topic new {of} --timeout-ms {_MEMBERS_STAY_MS}",
        "Processed a total of 0 messages", beside=True,
    )  # fmt: skip
    described = f"{_AT}--describe {of}"
    yield Step(
        "share groups: state", groups, f"{described} --state --verbose",
        r"sharers\s+[\w.]+:\d+\s+\(\d\)\s+Stable\s+(\d+)\s+\1\s+1$", tries=20,
    )  # fmt: skip
    yield Step(
        "share groups: members", groups, f"{described} --members --verbose",
        r"sharers\s+[\w-]{22}\s+/127.0.0.1\s+console-share-consumer\s+3\s+\d+\s+new:0,1,2",
    )  # fmt: skip
    yield Step("share groups: list", groups, f"{_AT}--list", r"(?m)^sharers$")
    words = f"{_AT}--list --state"
    yield Step("share groups: list states", groups, words, r"sharers\s+Stable")
    words = f"{_AT}--list --share"
    yield Step("groups: list shares", TOOLS + "GroupsCommand", words, r"sharers\s+Share\s+share")
    reset = f"{_AT}{of} --reset-offsets"
    refused = "Share group 'sharers' is not empty"
    words = f"{reset} --topic new:0 --to-earliest --execute"
    yield Step("share groups: reset refused", groups, words, refused, code=1)
    words = f"{described} --state"
    yield Step("share groups: empty", groups, words, r"sharers\s.*\sEmpty\s+0", tries=_LEAVES)
    words = f"{reset} --all-topics --to-latest --dry-run"
    yield Step("share groups: reset, to try", groups, words, r"sharers\s+new\s+2\s+[1-9]")
    words = f"{reset} --topic new:0 --to-earliest --execute"
    yield Step("share groups: reset", groups, words, r"sharers\s+new\s+0\s+0")
    yield Step("share groups: offsets", groups, described, r"sharers\s+new\s+0\s+0\s")
    yield Step(
        "console share consumer: after the reset", TOOLS + consumer,
        f"{_AT}--topic new {of} --max-messages 5 --timeout-ms 20000",
        "Processed a total of 5 messages",
    )  # fmt: skip
    words = f"{_AT}{of} --delete-offsets --topic new"
    yield Step("share groups: delete offsets", groups, words, r"new\s+Successful", tries=10)
    words = f"{_AT}--delete {of}"
    yield Step("share groups: delete", groups, words, r"\('sharers'\) was successful", tries=10)
    yield Step(
        "share groups: describe what is not there", groups, described,
        "GroupIdNotFoundException",
    )  # fmt: skip


def _properties(group: str) -> Iterator[Step]:
    configs, entity = ADMIN + "ConfigCommand", f"--entity-type groups --entity-name {group}"
    setting = "share.auto.offset.reset=earliest"
    words = f"{_AT}--alter {entity} --add-config {setting}"
    yield Step(f"configs: set for {group}", configs, words, "Completed updating config")
    words = f"{_AT}--describe {entity}"
    yield Step(f"configs: of {group}", configs, words, setting, tries=5)
    words = f"{_AT}--alter {entity} --add-config share.auto.offset.reset=never"
    told = "InvalidConfigurationException"
    yield Step(f"configs: a wrong value for {group}", configs, words, told, code=1)


def _share_clients() -> Iterator[Step]:
    yield Step(
        "verifiable share consumer", TOOLS + "VerifiableShareConsumer",
        f"{_AT}--topic new --group-id share-verifiers --max-messages 60"
        " --offset-reset-strategy earliest",
        '"name":"offsets_acknowledged".*"success":true[^$]*"name":"shutdown_complete"',
    )  # fmt: skip
    yield from list(_properties("performers"))[:1]
    yield Step(
        "share consumer perf test", TOOLS + "ShareConsumerPerformance",
        f"{_AT}--topic new --group performers --num-records 60 --timeout 20000",
        r"\d, 60, \d+$",
    )  # fmt: skip


def _features() -> Iterator[Step]:
    features = TOOLS + "FeatureCommand"
    consumer = f"{_AT}--topic new --group late --timeout-ms 30000"
    words = f"{_AT}describe"
    level = r"share\.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 1\s+Finalized\w+: "
    yield Step("features: describe", features, words, f"{level}1")
    words = f"{_AT}downgrade --feature share.version=0"
    yield Step("features: downgrade", features, words, r"share\.version was downgraded to 0")
    words = f"{_AT}describe"
    yield Step("features: it is down", features, words, f"{level}0", tries=10)
    main = TOOLS + "consumer.ConsoleShareConsumer"
    told = "The cluster does not support the share group protocol"
    yield Step("console share consumer: refused", main, consumer, told)
    words = f"{_AT}upgrade --feature share.version=2"
    yield Step("features: upgrade refused", features, words, "Could not upgrade", code=1)
    words = f"{_AT}upgrade --feature share.version=1"
    yield Step("features: upgrade", features, words, r"share\.version was upgraded to 1")
    words = f"{_AT}describe"
    yield Step("features: it is up", features, words, f"{level}1", tries=10)
