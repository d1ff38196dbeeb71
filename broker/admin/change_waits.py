"""Answers to changes of configurations, access rules, users, quotas and tokens, given once every
broker has the change or is passed over (`membership/agreement`).

The requests have no time-out of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import trio

from highwater.broker.context import Delayed, Reply
from highwater.broker.membership.agreement import (
    FOLLOWED_LIMIT_MS,
    LIMIT_MS,
    Question,
    about_announcements,
)
from highwater.broker.request.purgatory import DelayedOperation
from highwater.broker.request.response import Response
from highwater.world.api import ZkError

if TYPE_CHECKING:
    from highwater.broker.services import Services


class ChangeWait(DelayedOperation):
    kind: ClassVar[str] = "topic"
    timeout_ms = 2 * LIMIT_MS

    def __init__(self, services: Services, questions: Sequence[Question], answer: Response) -> None:
        self._own = object()
        self.keys = (self._own,)
        self._answer = answer
        self._askings = [
            services.agreement.begin(
                question,
                self.timeout_ms,
                lambda: services.completions.add(self.kind, self.keys),
            )
            for question in questions
        ]

    def try_complete(self) -> Response | None:
        return self._answer if all(asking.over for asking in self._askings) else None

    def on_expire(self) -> Response:
        return self._answer


async def announcements(services: Services, *folders: str) -> list[Question]:
    """The question whether every broker has followed these folders to their present ends."""
    announced = {}
    # the change is done: where ZooKeeper does not answer any more, nothing is waited for
    with suppress(ZkError), trio.move_on_after(FOLLOWED_LIMIT_MS / 1000):
        for feed in services.feeds:
            if feed.folder in folders:
                announced[feed.folder] = await feed.announced()
    return [about_announcements(announced, services.followed)] if announced else []


async def once_followed(services: Services, answer: Response, *folders: str) -> Reply:
    """The answer, when every broker has followed what these folders announce."""
    return Delayed(ChangeWait(services, await announcements(services, *folders), answer))
