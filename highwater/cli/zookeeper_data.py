"""`highwater zookeeper import`: the embedded ZooKeeper goes on with what Java's has left."""

from __future__ import annotations

from pathlib import Path

import click

from highwater.cli.cluster_folder import default_folder, read_state
from highwater.cli.error_lines import clear_errors


@click.group()
def zookeeper() -> None:
    """A cluster's ZooKeeper data.

    \b
    Example:
      highwater zookeeper import ~/.local/state/highwater/cluster
    """


@zookeeper.command("import")
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
def import_(folder: Path | None) -> None:
    """Make the data of Java's ZooKeeper the embedded one's: znodes, ACLs and sessions.

    FOLDER is a cluster's, as `highwater up --dir` has it, or ZooKeeper's own dataDir.  What was
    there is kept as version-2.imported; without it, `highwater up --zookeeper java` begins anew.

    Exit code: 0 it was imported, 1 it was not, and nothing was changed.

    \b
    Example:
      highwater down
      highwater zookeeper import
      highwater up --zookeeper embedded
    """
    from highwater.zookeeper.javas_data import NotHere
    from highwater.zookeeper.javas_import import take_over

    place = (folder or default_folder()).absolute()
    with clear_errors():
        data = _data_in(place)
        _check_stopped(data)
        try:
            made = take_over(data, lambda line: click.echo(line, err=True))
        except NotHere as error:
            raise click.ClickException(str(error)) from None
    click.echo(
        f"{made.znodes} znodes and {made.sessions} sessions up to zxid {made.zxid:#x};"
        f" Java's data are kept in {made.kept}"
    )
    click.echo("next: highwater up --zookeeper embedded", err=True)


def _data_in(place: Path) -> Path:
    """The dataDir that a folder is, or has."""
    from highwater.zookeeper.javas_import import JAVAS

    if place.name == JAVAS and place.is_dir():
        return place.parent
    for data in (place, place / "data", place / "zookeeper" / "data"):
        if (data / JAVAS).is_dir():
            return data
    if not place.is_dir():
        raise click.ClickException(f"there is no folder {place}")
    raise click.ClickException(
        f"{place} has no data of Java's ZooKeeper: name a cluster's folder, or the dataDir of"
        f" zoo.cfg, which has {JAVAS}"
    )


def _check_stopped(data: Path) -> None:
    from highwater.child_processes import Pid

    cluster = data.parent.parent
    state = read_state(cluster)
    if "supervisor" in state and Pid.from_json(state["supervisor"]).alive():
        raise click.ClickException(
            f"the cluster in {cluster} runs: stop it first (highwater down --dir {cluster})"
        )
    if (pid := _server_of(data)) is not None:
        raise click.ClickException(f"process {pid} is a ZooKeeper on {data}: stop it first")


def _server_of(data: Path) -> int | None:
    """A server that was started on this dataDir, by its arguments or by the files it has open."""
    import psutil

    here = psutil.Process()
    ours = {here.pid, *(parent.pid for parent in here.parents())}  # their words name it, too
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if process.pid in ours or not any("zookeeper" in word.lower() for word in words):
            continue
        if any(_names(Path(word), data) for word in words[1:] if "/" in word):
            return int(process.pid)
        try:
            opened = [Path(file.path) for file in process.open_files()]
        except psutil.Error:
            continue
        if any(data.resolve() in path.parents for path in opened):
            return int(process.pid)
    return None


def _names(path: Path, data: Path) -> bool:
    """Whether an argument of a server's is the dataDir, or a zoo.cfg that names it."""
    if path.suffix != ".cfg":
        return path.resolve() == data.resolve()
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    named = [line.partition("=")[2].strip() for line in lines if line.startswith("dataDir")]
    return any(Path(name).resolve() == data.resolve() for name in named)
