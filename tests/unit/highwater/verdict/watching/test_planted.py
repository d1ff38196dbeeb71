"""The watch's machines on the planted histories, line by line, and cut anywhere by a restart."""

from __future__ import annotations

import json

import pytest

from highwater.verdict.watching.dispatch import TRANSACTIONS, groups_of
from highwater.verdict.watching.topic_watch import TopicWatch
from highwater.verdict.watching.transaction_watch import TransactionWatch
from tests.planted.stories import PLANTS
from tests.planted.story import Plant

UNSEEN_MS = 60_000
SO_FAR, SO_FAR_OF = {"C3"}, {"C2", "C3", "C4", "C8"}
"""A skipped record is lost (C3) until another reader finds it (C8), or finds it elsewhere."""


def watch(plant: Plant, restart_every: int | None = None) -> set[str]:
    """The rules that the machines say are broken."""
    story = plant.tell()
    topic = TopicWatch(story.topic, unclean=story.unclean)
    money = TransactionWatch()
    for number, line in enumerate(json.loads(json.dumps(story.lines))):
        if line.get("topic") == story.topic:
            topic.line(line, 0)
        if TRANSACTIONS in groups_of(line):
            money.line(line, 0)
        if restart_every and number % restart_every == 0:
            kept, told = (topic.dump(), money.dump()), (topic.told.take(), money.told.take())
            topic = TopicWatch(story.topic, unclean=story.unclean)
            money = TransactionWatch()
            topic.load(kept[0])
            money.load(kept[1])
            topic.told.alarms, money.told.alarms = told
        topic.forget()
        money.forget()
    for c in story.consumed:
        topic.record(c["partition"], c["offset"], c["key"], c["value"], 0, 0)
    topic.due(UNSEEN_MS)
    money.due(UNSEEN_MS)
    return {alarm.rule for alarm in topic.told.take() + money.told.take()}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_planted(plant: Plant) -> None:
    print(plant.name, sorted(plant.violations), sorted(watch(plant)))
    assert watch(plant) <= plant.violations | (SO_FAR if plant.violations & SO_FAR_OF else set())
    assert watch(plant) == watch(plant, restart_every=2)
