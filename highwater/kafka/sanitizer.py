"""Names of users and clients as parts of a znode's path.

Source: org.apache.kafka.common.utils.Sanitizer.
"""

from __future__ import annotations

from urllib.parse import quote, unquote


def sanitize(name: str) -> str:
    return quote(name, safe="-._").replace("~", "%7E")


def desanitize(name: str) -> str:
    return unquote(name)
