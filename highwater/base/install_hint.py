"""The command that adds an optional part of Highwater to this environment.

No registry has the package, so it is installed again from where it came from, which pip notes
beside it (PEP 610).
"""

from __future__ import annotations

import json


def install_hint(extra: str) -> str:
    """`pip install '…[extra]'`, with the path of the clone or wheel where it is known."""
    return f"pip install '{_source() or 'path/to/highwater'}[{extra}]'"


def _source() -> str | None:
    # late: each command imports this module, and few need a hint
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        noted = distribution("highwater-kafka").read_text("direct_url.json")
        url = urlsplit(json.loads(noted or "{}").get("url", ""))
    except (PackageNotFoundError, ValueError):
        return None
    return unquote(url.path) if url.scheme == "file" else None
