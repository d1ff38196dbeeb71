"""Reasons for an anomaly, from the cluster: why the application may have lost a record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_MOST_EVENTS = 5


def of_acknowledged(topic: str, events: Iterable[str]) -> list[str]:
    """Of acknowledged records that are gone from the topic; `events` are the test's."""
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
    """Of a record that the application did not process; `groups` are the test's, by their state,
    `place` is the record's partition."""
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
    """Of a record of the partition `place` that the application processed again: what the test
    broke, where its groups are, and the remedy; `events` are the test's, with their times."""
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
