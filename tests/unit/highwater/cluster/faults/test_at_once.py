"""Several members at once: one that fails does not hold back the others."""

from __future__ import annotations

import pytest
import trio

from highwater.cluster.faults.stage import at_once
from highwater.cluster.interface import ClusterError


async def test_a_failure_is_one_error_after_all_have_been_through() -> None:
    done: list[str] = []

    async def verb(member: str) -> None:
        if member == "broker-1":
            raise ClusterError("cannot pause broker-1")
        await trio.lowlevel.checkpoint()
        done.append(member)

    with pytest.raises(ClusterError, match="cannot pause broker-1"):
        await at_once(verb, ["broker-1", "broker-2", "broker-3"])
    assert sorted(done) == ["broker-2", "broker-3"]
