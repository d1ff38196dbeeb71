"""The deliberate differences from Apache Kafka: some files, and docs/differences.md from them.

python -m tests.integration.oracle.differences > docs/differences.md
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from highwater.kafka.wire.header import api_name
from tests.integration.oracle.asking import Difference, Offered
from tests.integration.oracle.bodies import request

FILE = Path(__file__).parent / "differences.toml"
BY_ID = FILE.with_name("differences_by_id.toml")
"""Beside Apache Kafka 4.2, where topics are named by their ids."""
OF_CONSUMER_GROUPS = FILE.with_name("differences_of_consumer_groups.toml")
"""Beside Apache Kafka 4.2, in the consumer protocol."""
OF_MIXED_GROUPS = FILE.with_name("differences_of_mixed_groups.toml")
"""Beside Apache Kafka 4.2, in groups with members of both protocols."""
OF_SHARE_GROUPS = FILE.with_name("differences_of_share_groups.toml")
"""Beside Apache Kafka 4.2, in share groups and the state of their share-partitions."""
OF_SHARE_FETCHES = FILE.with_name("differences_of_share_fetches.toml")
"""Beside Apache Kafka 4.2, at the leaders of partitions that share groups read."""
VERSIONS = "versions"


@dataclass(frozen=True, slots=True)
class Entry:
    """Regular expressions for the whole of an API's name, a case's name and a path."""

    what: str
    reason: str
    api: str
    case: str = ".*"
    path: str = ".*"
    ours: str = ".*"
    theirs: str = ".*"
    shown_by: str = ""
    """The test of test_same_answers.py that shows it, where the script cannot."""

    def covers(self, found: Difference) -> bool:
        if self.shown_by:
            return False
        pairs = (
            (self.api, found.api), (self.case, found.case), (self.path, found.path),
            (self.ours, str(found.ours)), (self.theirs, str(found.theirs)),
        )  # fmt: skip
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in pairs)


def load(file: Path = FILE) -> list[Entry]:
    return [Entry(**raw) for raw in tomllib.loads(file.read_text())["difference"]]


def api_versions() -> Any:
    return request(18, 0, {})


def of_versions(offered: Offered) -> Iterator[Difference]:
    """An API that only one side has, or with other versions."""
    for key in sorted({*offered.ours, *offered.theirs}):
        ours, theirs = offered.ours.get(key), offered.theirs.get(key)
        if ours != theirs:
            yield Difference(api_name(key), VERSIONS, 0, VERSIONS, ours, theirs)


HEAD = """\
# Where Highwater differs from Apache Kafka

Made from tests/integration/oracle/differences.toml by
`python -m tests.integration.oracle.differences`.  A test sends one script of requests, at every
version, to a cluster of each (Apache Kafka 3.9 in ZooKeeper mode), and compares the answers field
by field: everything it asks that is not listed here is equal, but for ports, random ids, times,
folders, and the words of error messages.

| API | what | why |
|---|---|---|
"""


HEAD_BY_ID = """
## Topic ids and features

Apache Kafka 3.9 in ZooKeeper mode gives no ids beside inter.broker.protocol.version 2.6.  So what
names topics by their ids or changes features, and the versions that came later, are compared with
Apache Kafka 4.2 in KRaft mode (tests/integration/oracle/test_topics_by_id.py).

| API | what | why |
|---|---|---|
"""


HEAD_OF_CONSUMER_GROUPS = """
## The consumer protocol

KIP-848 is compared with Apache Kafka 4.2 (tests/integration/oracle/test_consumer_groups.py, and
test_mixed_groups.py for groups with members of both protocols).

| API | what | why |
|---|---|---|
"""


HEAD_OF_SHARE_GROUPS = """
## Share groups

KIP-932 is compared with Apache Kafka 4.2: the group coordinator's part and the share coordinator
(tests/integration/oracle/test_share_groups.py), and the partitions' leaders (test_share_fetch.py).

| API | what | why |
|---|---|---|
"""


def render() -> str:
    return "".join(
        (
            HEAD, _rows(load()), HEAD_BY_ID, _rows(load(BY_ID)),
            HEAD_OF_CONSUMER_GROUPS, _rows(load(OF_CONSUMER_GROUPS)),
            _rows(load(OF_MIXED_GROUPS)),
            HEAD_OF_SHARE_GROUPS, _rows(load(OF_SHARE_GROUPS)),
            _rows(load(OF_SHARE_FETCHES)),
        )
    )  # fmt: skip


def _rows(entries: list[Entry]) -> str:
    rows = []
    for entry in entries:
        api = "all" if entry.api == ".*" else entry.api.replace("|", ", ").replace(".*", "…")
        rows.append(f"| {api} | {entry.what} | {entry.reason} |\n")
    return "".join(rows)


if __name__ == "__main__":
    print(render(), end="")
