"""Figures in a page of docs/: each command replaces its own section there.

A section stands between two comments that name it.  The rest of the page stays as it is, and a new
section goes to the end.
"""

from __future__ import annotations

import re


def section(heading: str, command: str, table: str) -> str:
    """A heading, where there is one; the command behind the figures, and their table."""
    return "\n\n".join([*filter(None, [heading]), f"{command}.", table])


def put(page: str, name: str, text: str) -> str:
    """The page with this section in its new form."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    whole = f"{begin}\n{text}\n{end}"
    old = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if old.search(page):
        return old.sub(lambda _: whole, page, count=1)
    return f"{page.rstrip()}\n\n{whole}\n".lstrip()
