"""Loads kafka-python's codecs without its clients.

`import kafka` imports a producer, a consumer, an admin client and their network layer, none of
which a broker uses: a quarter of a second of CPU and 5 MiB for each broker process.  So a broker
puts an empty package of that name in place first, through which `kafka.protocol` is found as usual.

For processes of our own only: a program that uses kafka-python's clients must not call this.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def load_codecs_only() -> bool:
    """To be called before anything else imports `kafka`; False where it is too late (no harm)."""
    if "kafka" in sys.modules:
        return False
    spec = find_spec("kafka")
    if spec is None or spec.submodule_search_locations is None:
        return False  # the import itself will tell
    package = ModuleType("kafka")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = ModuleSpec("kafka", None, is_package=True)
    package.__spec__.submodule_search_locations = package.__path__
    sys.modules["kafka"] = package
    return True
