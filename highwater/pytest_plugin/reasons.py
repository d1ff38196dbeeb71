"""Reasons for an anomaly, from the cluster: why the application may have lost a record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_MOST_EVENTS = 5


def of_acknowledged(topic: str, events: Iterable[str]) -> list[str]:
    """Why acknowledged records may be gone from the topic; `events`: what the test broke."""
    for text in events:
        died = re.match(r"\w+ (broker-\d+): .*\bleading (.*)", text)
        led = died[2].split(", ") if died else []
        own = [place for place in led if place.rpartition("-")[0] == topic]
        if died and own:
            return [
                f"{died[1]} died while it led {', '.join(own)}. What a producer with acks=1 is"
                " acknowledged may be on the leader alone;",
                "with acks=all and min.insync.replicas=2 two brokers have it by then",
            ]
    return []


def of_processed(place: str, offset: int, groups: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why the application may not have processed a record of the partition `place`; `groups`: the
    test's groups, as the control API describes them."""
    lines = []
    for group in groups:
        committed = group["committed"].get(place)
        if committed is None:
            continue
        told = f"group {group['group']} has committed {place} up to offset {committed}"
        if committed > offset:
            lines += [
                f"{told}, past this record, and is not given it again:",
                "commit a record when its work is done, not before",
            ]
        else:
            lines += [
                f"{told}, and had not come to this record yet:",
                f"kafka.wait.lag_below({group['group']!r}, 1) waits for that",
            ]
    return lines


def of_repeated(
    place: str, events: Iterable[str], groups: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Why the application may have processed a record of the partition `place` again, and what
    helps; `events`: what the test broke, and when; `groups`: as above."""
    lines = [f"in this test: {text}" for text in events][:_MOST_EVENTS]
    for group in groups:
        committed = group["committed"].get(place)
        if committed is not None:
            lines.append(f"group {group['group']} has committed {place} up to offset {committed}")
    return [
        *lines,
        "a record is read again when its offset was not committed before a restart or a rebalance:",
        "store its output and its offset in one transaction, or leave out what was stored already",
    ]
