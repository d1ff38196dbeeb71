"""The levels of features: what brokers announce, within the limits that an administrator set.

UpdateFeatures, on any broker, writes the limits into a znode, which the controller watches.  Levels
and their epoch go to the brokers in UpdateMetadata.  The epoch is made of the controller epoch and
a count, so it rises with each change, and with each controller, and nobody has to store it.
"""

from __future__ import annotations

import logging

from highwater.controller.rules import request_batch as requests
from highwater.controller.rules.effects import Exists, Get, Procedure, read
from highwater.controller.rules.state import State
from highwater.kafka import znodes

log = logging.getLogger("controller")


def load(state: State) -> Procedure[None]:
    """Reads the limits, with a watch; a damaged znode changes nothing."""
    path = znodes.FEATURE_LIMITS
    _, answer = yield from read([Exists(path, watch=True), Get(path)])
    try:
        state.feature_limits = {} if answer is None else znodes.decode_feature_limits(answer[0])
    except znodes.BadZnode as e:
        log.error("%s", e)


def changed(state: State) -> Procedure[None]:
    """Handles changed limits: sends the levels to all brokers."""
    before = state.features()
    yield from load(state)
    if state.features() != before:
        log.info("features in use: %s, before: %s", dict(state.features()), dict(before))
        yield from requests.send_update_metadata(state)
