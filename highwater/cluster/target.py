"""What a chaos run breaks, as `--target` names it.

    apache:3.9.2          that release of Apache Kafka, from Maven, with ZooKeeper
    apache:2.4.0          the same; each release from 2.4.0 to 3.9
    apache:3.9.2-kraft    that release in KRaft mode, from 3.7 on
    apache:4.2.0          KRaft mode, as 4.0 and later have no other

Without `--target` it is Highwater's own brokers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from highwater.child_processes import StartError
from highwater.cluster import apache
from highwater.cluster.programs import ApacheKafka, numbers

FIRST = (2, 4)
"""The first release that is built for Scala 2.13, and that moves leaders by Admin (KIP-455)."""
FIRST_WITHOUT_ZOOKEEPER = (4, 0)
_APACHE = re.compile(r"apache:(\d+(?:\.\d+){2})(-kraft)?")
FORMS = "apache:VERSION (such as apache:3.9.2 or apache:2.4.0)"


@dataclass(frozen=True, slots=True)
class ApacheRelease:
    """Three brokers of a release, as processes on this machine."""

    version: str
    kraft: bool = False

    def __str__(self) -> str:
        return f"Apache Kafka {self.version} ({'KRaft' if self.kraft else 'ZooKeeper'})"

    def program(self) -> ApacheKafka:
        """Fetches the release where it is not there; raises StartError."""
        return ApacheKafka(apache.home(self.version), version=self.version)


def parse(text: str) -> ApacheRelease:
    """Raises StartError for a text that names no target."""
    match = _APACHE.fullmatch(text)
    if match is None:
        raise StartError(f"--target {text!r} is not understood; write {FORMS}")
    version, kraft = match.group(1), bool(match.group(2))
    if numbers(version) < FIRST:
        raise StartError(
            f"--target {text}: releases before 2.4.0 cannot be moved by Admin (KIP-455),"
            " and are not supported"
        )
    if kraft or numbers(version) >= FIRST_WITHOUT_ZOOKEEPER:
        raise StartError(f"--target {text}: KRaft mode is not supported")
    return ApacheRelease(version, kraft)
