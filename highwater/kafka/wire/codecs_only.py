"""Loads kafka-python's codecs without its clients.

`import kafka` imports a producer, a consumer, an admin client and their network layer, none of
which a broker uses: a quarter of a second of CPU and 5 MiB for each broker process.  So a broker
first registers an empty package of that name, through which `kafka.protocol` is found as usual;
and empty packages in place of those whose own code imports all of their modules, each of which
reads its schemas.
This is for Highwater's own processes: a program that uses kafka-python's clients must not call it.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_ROOMS = ("admin", "consumer", "metadata", "producer")


def load_codecs_only() -> bool:
    """Must run before anything else imports `kafka`; False where it is too late (no harm)."""
    if "kafka" in sys.modules:
        return False
    spec = find_spec("kafka")
    if spec is None or spec.submodule_search_locations is None:
        return False  # the import itself raises the error
    places = list(spec.submodule_search_locations)
    sys.modules["kafka"] = _empty("kafka", places)
    for room in _ROOMS:
        name = f"kafka.protocol.{room}"
        sys.modules[name] = _empty(name, [f"{place}/protocol/{room}" for place in places])
    return True


def _empty(name: str, places: list[str]) -> ModuleType:
    package = ModuleType(name)
    package.__path__ = places
    package.__spec__ = ModuleSpec(name, None, is_package=True)
    package.__spec__.submodule_search_locations = places
    return package
