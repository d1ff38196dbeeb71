from __future__ import annotations

import pytest

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.topic_names import check_collision, check_name


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "x" * 249, "...", "0"])
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "é", "a/b", "a\n"])
def test_bad_names(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert caught.value.detail


def test_dots_and_underscores_collide() -> None:
    check_collision("a.b", ["a.b", "ab"])
    check_collision("plain", ["other"])
    with pytest.raises(ApiError, match="collides with a_b"):
        check_collision("a.b", ["a_b", "c"])
