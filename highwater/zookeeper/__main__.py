"""The server as a process.

usage: python -m highwater.zookeeper --data FOLDER [--port 2181] [--host 127.0.0.1] [--tick 2000]
                                     [--sync] [--max-client-connections 0]
                                     [--four-letter-words ruok,srvr]
"""

from __future__ import annotations

import argparse
import gc
import ipaddress
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import trio

from highwater.zookeeper import four_letter_words
from highwater.zookeeper.sockets import DiskFails, Options, Server
from highwater.zookeeper.store import SNAPSHOT_AFTER, Store, Unreadable

_LONG_S = 0.003


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m highwater.zookeeper",
        description="A ZooKeeper server, for tests: one machine, its changes in FOLDER.",
        epilog="example: python -m highwater.zookeeper --data /tmp/zk --port 2181",
    )
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--port", type=int, default=2181)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--tick", type=int, default=2000, metavar="MS")
    parser.add_argument(
        "--snapshot-after", type=int, default=SNAPSHOT_AFTER, metavar="BYTES",
        help="of the log [default: %(default)s]",
    )  # fmt: skip
    parser.add_argument(
        "--sync", action="store_true",
        help="answer a change when it is on the disk itself, so that a power loss keeps it",
    )  # fmt: skip
    parser.add_argument(
        "--max-client-connections", type=int, default=0, metavar="COUNT",
        help="of one address; 0: any number, as maxClientCnxns [default: %(default)s]",
    )  # fmt: skip
    parser.add_argument(
        "--four-letter-words", type=_words, default="*", metavar="WORDS",
        help="that are answered: * or names with commas, as 4lw.commands.whitelist [default: *]",
    )  # fmt: skip
    return parser.parse_args(words)


def _words(text: str) -> frozenset[str]:
    try:
        return four_letter_words.allowed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Garbage:
    """A callback for gc.callbacks: later collections ignore what has survived a long full one.

    A full collection walks through every znode (12 ms for 30,000 of them) and stops the loop for
    that time.  The cost: a cycle that was alive then is never freed (some kilobytes of a
    connection).
    """

    def __init__(self) -> None:
        self._began = 0.0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif info["generation"] == 2 and time.perf_counter() - self._began > _LONG_S:
            gc.freeze()


async def _run(server: Server, host: str, port: int) -> None:
    async with trio.open_nursery() as nursery:
        own = await nursery.start(server.serve, port, host)
        print(f"serves at {host}:{own}", flush=True)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                nursery.cancel_scope.cancel()
                return


def main(words: list[str]) -> int:
    given = _arguments(words)
    if not _loopback(given.host):
        print(f"{given.host} is not this machine alone: who reaches it owns the cluster",
              file=sys.stderr, flush=True)  # fmt: skip
    options = Options(
        sync=given.sync, words=given.four_letter_words, per_host=given.max_client_connections
    )
    try:
        fsync = getattr(os, "fdatasync", os.fsync) if given.sync else None
        store = Store(given.data, given.snapshot_after, fsync)
        server = Server(given.tick, store, options)
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        return _fails(given.data, error)
    code = 0
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_Garbage())
    try:
        trio.run(_run, server, given.host, given.port)
    except* DiskFails as errors:
        code = _fails(given.data, next(_leaves(errors)))
    except* OSError as errors:
        where = f"{given.host}:{given.port}"
        print(f"{where}: {next(_leaves(errors))}: give another --port or --host", file=sys.stderr)
        code = 1
    finally:
        store.close()
    return code


def _fails(folder: Path, error: BaseException) -> int:
    print(f"{folder} cannot be written: {error}: nothing more is acknowledged", file=sys.stderr)
    return 1


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
