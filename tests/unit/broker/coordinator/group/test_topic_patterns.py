"""Regular expressions that stand for topics: RE2's language, its bounds, and its absence."""

from __future__ import annotations

import sys

import pytest
import trio

from highwater.broker.coordinator.group.topic_patterns import (
    MAX_LENGTH,
    NAMES_A_TURN,
    check,
    compiled,
    matches,
)
from highwater.kafka.errors import ApiError, ErrorCode


def refusal(regex: str) -> str:
    with pytest.raises(ApiError) as refused:
        check(regex)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    return str(refused.value.detail)


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert "pip install" in refusal("a.*")
    assert "[re2]" in refusal("a.*")


def test_what_is_no_expression_is_refused() -> None:
    pytest.importorskip("re2")
    assert "no regular expression" in refusal("(")
    assert "no regular expression" in refusal("(?=a)"), "which RE2 has not"
    assert f"{MAX_LENGTH}" in refusal("a" * (MAX_LENGTH + 1))
    assert "no regular expression" in refusal("((a{1,100}){1,100}){1,100}")
    assert compiled("a+").fullmatch("aaa")


@pytest.mark.trio
async def test_whole_names_match_in_slices() -> None:
    pytest.importorskip("re2")
    names = [f"t{n}" for n in range(2 * NAMES_A_TURN + 1)]
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1
        await trio.lowlevel.checkpoint()

    found = await matches(["t1", "t1.", "("], names, lambda name: name != "t15", pause)
    assert found["t1"] == ("t1",)
    assert found["t1."] == tuple(f"t1{n}" for n in range(10) if n != 5)
    assert found["("] == ()
    assert pauses == 2
