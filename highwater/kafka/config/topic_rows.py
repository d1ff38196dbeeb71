"""The rows of topic properties that do not simply mirror a broker property."""

from __future__ import annotations

import re
from typing import Any

from highwater.kafka.config.log_rows import TIERED
from highwater.kafka.config.property_row import HOUR_MS, LONG_MAX, Kind, Property, State

_UNITS = {"minutes": 60_000, "hours": HOUR_MS}
RETENTION_MS = Property(
    name="retention.ms", kind=Kind.LONG, default=168 * HOUR_MS, at_least=-1,
    synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    attribute="retention_ms", read_by="highwater.broker.log.retention",
    test="test_log::test_retention_by_size_and_time",
    doc="How many milliseconds records are kept; -1 for ever.",
)  # fmt: skip
SEGMENT_MS = Property(
    name="segment.ms", kind=Kind.LONG, default=168 * HOUR_MS, at_least=1,
    synonyms=("log.roll.ms", "log.roll.hours"), attribute="segment_ms",
    read_by="highwater.broker.log.log_config", test="test_log::test_rolling_by_size_and_time",
    doc="After how many milliseconds a new segment begins.",
)  # fmt: skip
SEGMENT_JITTER_MS = Property(
    name="segment.jitter.ms", kind=Kind.LONG, default=0, at_least=0,
    synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"), attribute="segment_jitter_ms",
    read_by="highwater.broker.log.log_config",
    test="test_segment_room::test_a_segment_is_rolled_sooner_by_its_jitter",
    doc="How many milliseconds at most are taken off segment.ms at random.",
)  # fmt: skip
FLUSH_MS = Property(
    name="flush.ms", kind=Kind.LONG, default=LONG_MAX, at_least=0,
    synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"), attribute="flush_ms",
    read_by="highwater.broker.log.log_manager",
    test="test_manager_times::test_a_topics_own_flush_ms_holds_for_it_alone",
    doc="After how many milliseconds records are flushed to disk.",
)  # fmt: skip
_PAIRS = re.compile(r"\*|([0-9]+:[0-9]+(\s*,\s*[0-9]+:[0-9]+)*)?")


def _no_pairs(text: str) -> str | None:
    fits = _PAIRS.fullmatch(text.strip())
    return None if fits else "neither * nor pairs; write partition:broker, such as 0:1,1:2"


TOPICS_OWN: tuple[Property, ...] = (
    RETENTION_MS,
    SEGMENT_MS,
    SEGMENT_JITTER_MS,
    FLUSH_MS,
    *(
        Property(
            name=f"{side}.replication.throttled.replicas",
            kind=Kind.LIST,
            default="",
            wrong=_no_pairs,
            read_by="highwater.broker.replica.throttles",
            test="test_throttles::test_the_directions_have_lists_and_rates_of_their_own",
            doc=doc,
        )
        for side, doc in (
            (
                "leader",
                "The replicas whose fetches their leader throttles, as partition:broker pairs, "
                "or * for all.",
            ),
            (
                "follower",
                "The replicas whose fetches are throttled, as partition:broker pairs, "
                "or * for all.",
            ),
        )
    ),
    *(
        Property(name=name, kind=Kind.BOOLEAN, default=False, state=state, reason=TIERED, doc=doc)
        for name, state, doc in (
            (
                "remote.log.copy.disable",
                State.WITHOUT_EFFECT,
                "Whether tiered storage gets no more of the topic.",
            ),
            (
                "remote.log.delete.on.disable",
                State.WITHOUT_EFFECT,
                "Whether tiered data is deleted when it is turned off.",
            ),
            ("remote.storage.enable", State.REFUSED, "Whether the topic uses tiered storage."),
        )
    ),
)


def first_given(config: Any, row: Property) -> int:
    """The value, in milliseconds, of the first synonym of a topic's property that has one."""
    for name in row.synonyms:
        value = getattr(config, name.replace(".", "_"))
        if value is not None:
            return int(value) * _UNITS.get(name.rpartition(".")[2], 1)
    raise AssertionError(row.name)  # the last one has a default
