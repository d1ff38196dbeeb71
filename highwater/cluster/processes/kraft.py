"""The storage of brokers in KRaft mode: formatted before their first start, by Kafka's own class.

`kafka.tools.StorageTool format` writes meta.properties, with the cluster's id, into each log
directory, and the first records of the metadata log (KIP-631).  Each broker's call is a JVM of its
own; they run at once.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from highwater.child_processes import StartError

FORMAT_S = 120.0


def cluster_id() -> str:
    """A new cluster id, as Kafka's Uuid prints it: 22 characters of base64, the first no dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22])[0] == "-":
        pass
    return text


async def format_storage(
    commands: Mapping[Path, Sequence[str]], environment: Mapping[str, str]
) -> None:
    """Carries out the commands, each in a broker's folder; raises StartError with its last words.

    A folder that is formatted already stays as it is.
    """
    new = {folder: c for folder, c in commands.items() if not any(folder.glob("*/meta.properties"))}
    async with trio.open_nursery() as nursery:
        for folder, command in new.items():
            nursery.start_soon(_format, folder, command, environment)


async def _format(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    with trio.move_on_after(FORMAT_S):
        done = await trio.run_process(
            list(command), cwd=folder, env=dict(environment), check=False,
            capture_stdout=True, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said = done.stdout.decode(errors="replace").strip()
        (folder / "format.log").write_text(said + "\n")
        if done.returncode:
            last = said.splitlines()[-1:] or ["nothing"]
            raise StartError(f"the storage in {folder} could not be formatted: {last[0]}")
        return
    raise StartError(f"the storage in {folder} is not formatted after {FORMAT_S:g} s")
