"""Whether this installation has compiled modules (`machine_code.py`), or runs the files."""

from __future__ import annotations

from importlib.util import find_spec


def compiled() -> bool:
    """True where the modules that read records are machine code."""
    spec = find_spec("highwater.kafka.wire.record_walk")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
