"""`python -I -m highwater.agent`: settings in, a cluster and its control API out.

It reads one line of JSON (`agent_settings`) from standard input, starts the cluster,
writes one line of JSON to standard output, and serves until its input ends: it cannot outlive its
parent.  SIGTERM and SIGINT end it, too.

Users' tests wait for its start.  So its imports are late, leave out kafka-python's clients, and run
with garbage collection off.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from highwater.agent.agent_settings import AgentSettings

_NAMES = "program", "runtime", "folder", "profile"


def _prepare_imports() -> None:
    from highwater.kafka.wire.codecs_only import load_codecs_only

    gc.disable()
    load_codecs_only()


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _serve(settings: AgentSettings) -> None:
    import trio

    from highwater.agent.routes import answer
    from highwater.agent.supervisor import Agent, agent, serve

    gc.enable()

    def ready(made: Agent) -> None:
        _tell(
            {
                "control": made.control,
                "token": made.token,
                "bootstrap": made.cluster.bootstrap,
                "seconds": round(made.seconds, 3),
                "warnings": settings.unknown_properties(),
            }
        )

    trio.run(serve, agent(settings, answer), ready, _end_of_input)


async def _end_of_input() -> None:
    import trio

    def read() -> None:
        while os.read(0, 4096):
            pass  # what arrives is ignored: only the end of the input matters

    await trio.to_thread.run_sync(read, abandon_on_cancel=True)


def _begin_members(line: bytes) -> None:
    """Starts the process that will fork the members before this one loads anything else, so that
    both load at once.  The settings are checked later; if they are wrong, both processes end."""
    from highwater.cluster.processes import forked_members

    given = {"program": "highwater", "runtime": "process", "profile": "test"}
    with suppress(ValueError, TypeError, KeyError):
        given |= json.loads(line)
        program, runtime, folder, profile = map(str, itemgetter(*_NAMES)(given))
        forked_members.begin(program, runtime, Path(folder).absolute(), profile)


def main() -> int:
    line = sys.stdin.buffer.readline()
    _begin_members(line)
    _prepare_imports()
    from highwater.agent.agent_settings import AgentSettings
    from highwater.agent.errors import control_error
    from highwater.child_processes import StartError

    try:
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise StartError(f"the settings are not one line of JSON: {error}") from None
        settings = AgentSettings.from_json(raw)
        settings.folder.mkdir(parents=True, exist_ok=True)
        _serve(settings)
    except Exception as error:
        _tell(control_error(error).as_json())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
