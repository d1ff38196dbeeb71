"""Loads kafka-python's codecs without its clients.

`import kafka` imports a producer, a consumer, an admin client and their network layer, none of
which a broker uses: a quarter of a second of CPU and 5 MiB for each broker process.  So a broker
first registers an empty package of that name, through which `kafka.protocol` is found as usual.
This is for Highwater's own processes: a program that uses kafka-python's clients must not call it.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def load_codecs_only() -> bool:
    """Must run before anything else imports `kafka`; False where it is too late (no harm)."""
    if "kafka" in sys.modules:
        return False
    spec = find_spec("kafka")
    if spec is None or spec.submodule_search_locations is None:
        return False  # the import itself raises the error
    package = ModuleType("kafka")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = ModuleSpec("kafka", None, is_package=True)
    package.__spec__.submodule_search_locations = package.__path__
    sys.modules["kafka"] = package
    return True
