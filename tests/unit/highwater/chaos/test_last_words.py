"""What is told of an application that ended."""

from __future__ import annotations

import pytest

from highwater.chaos.app_processes import LAST_LINES, SILENT, last_words

LOG = "%3|1795851223.854|FAIL|rdkafka#producer-2| [thrd:127.0.0.1:27757/3]: Connection refused"


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("", SILENT),
        ("\n \n", SILENT),
        (f"no configuration\n{LOG}\n", ("no configuration",)),
        (LOG, (LOG,)),  # it is all there is
        ("\n".join("abcdefg"), tuple("abcdefg")[-LAST_LINES:]),
    ],
)
def test_its_own_lines_come_before_those_of_its_client(printed: str, told: object) -> None:
    assert last_words(printed) == told
