"""The values that options and marker take; imports nothing that costs time."""

from __future__ import annotations

import re

PROFILES = ("test", "kafka")
MOST_BROKERS = 9
RUNTIMES = ("process", "compose", "apache", "apache:VERSION")
"""The last one is any release, such as apache:4.2.0 and apache:3.9.2-kraft (docs/targets.md)."""
_RELEASE = re.compile(r"apache:\d+(\.\d+){2}(-kraft|-apart)?")
GROUP_PROTOCOLS = ("classic", "consumer", "share")
SECURITIES = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


def is_runtime(text: str) -> bool:
    return text in RUNTIMES[:-1] or _RELEASE.fullmatch(text) is not None
