"""The command line with client libraries that refuse to wait on a loop.

    python tests/guarded.py chaos --app …

Every call of confluent-kafka, kafka-python and aiokafka that may wait fails where trio's loop runs
in the same thread.  A poll or consume of no time is none.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_BOTH = ("close", "commit", "committed", "list_topics", "flush", "poll", "consume", "assign")
_READS = ("get_watermark_offsets", "offsets_for_times", "position", "seek", "unassign")
_WRITES = ("init_transactions", "commit_transaction", "abort_transaction")
WAITING = (*_BOTH, *_READS, *_WRITES, "send_offsets_to_transaction", "purge")
_ADMIN = ("list_topics", "poll")
_PYTHON = ("close", "commit", "committed", "flush", "poll", "beginning_offsets", "end_offsets")
CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "confluent_kafka": {"Consumer": WAITING, "Producer": WAITING},
    "confluent_kafka.admin": {"AdminClient": _ADMIN},
    "kafka": {"KafkaConsumer": _PYTHON, "KafkaProducer": _PYTHON, "KafkaAdminClient": _PYTHON},
    "aiokafka": {"AIOKafkaConsumer": ("start", "stop"), "AIOKafkaProducer": ("start", "stop")},
}

_OF_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class that is not C's."""


class WaitsOnTheLoop(AssertionError):
    """A call that may wait, where a loop runs."""


def refuse(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raises WaitsOnTheLoop where trio runs in this thread."""
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_run():
        return
    if name.endswith((".poll", ".consume")) and 0 in (*arguments[-1:], *named.values()):
        return
    raise WaitsOnTheLoop(f"{name} on a loop's thread")


def guard(module: ModuleType, classes: dict[str, tuple[str, ...]]) -> None:
    """Replaces the module's classes by ones whose waiting calls refuse."""
    for name, calls in classes.items():
        library = getattr(module, name)
        own: dict[str, Any] = {call: _guarded(name, call, getattr(library, call)) for call in calls
               if hasattr(library, call)}  # fmt: skip
        if module.__name__.startswith("confluent_kafka") and name != "Consumer":
            own["__del__"] = functools.partialmethod(_end, name)
        if library.__flags__ & _OF_PYTHON:  # it names itself, so that it must stay the same
            for call, guarded in own.items():
                setattr(library, call, guarded)
        else:
            setattr(module, name, type(name, (library,), own))


def _end(self: object, name: str) -> None:
    """librdkafka's own end waits for its threads; a consumer's does so when it is closed."""
    try:
        refuse(f"the end of a {name}", (), {})
    except WaitsOnTheLoop as error:  # raised here, it would be ignored
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(70)


def _guarded(of: str, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(self: Any, *arguments: Any, **named: Any) -> Any:
        refuse(f"{of}.{name}", arguments, named)
        return call(self, *arguments, **named)

    return guarded


class Hook(MetaPathFinder, Loader):
    """Guards each library when it is imported: most commands import none."""

    def __init__(self) -> None:
        self._inside: set[str] = set()

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in CLASSES or name in self._inside:
            return None
        self._inside.add(name)
        found = find_spec(name)
        if found is not None and found.loader is not None:
            load = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                guard(module, CLASSES[name])

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


def main() -> None:
    sys.meta_path.insert(0, Hook())
    importlib.import_module("highwater.cli.main").main()


if __name__ == "__main__":
    main()
