"""One broker process: `python -I -m highwater.broker --config FILE [--override name=value]`.

Without --config the environment configures it, as it does the apache/kafka image: KAFKA_* variables
over /mnt/shared/config/server.properties, where that exists; --environment applies them over files,
too.

SIGTERM and SIGINT start a controlled shutdown; a second signal ends the process at once.  Exit
codes: 0 stopped as told, 1 could not start or had to stop, 2 bad configuration.  The reason for a
failure is one line on stderr.

Imports are late, so that a bad configuration is reported before anything heavy is loaded.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from highwater.broker.services import Services
    from highwater.kafka.config import Config
    from highwater.world.zookeeper_link import ZooKeeperLink

SHARED_FILE = "/mnt/shared/config/server.properties"
OK, FATAL, BAD_CONFIG = 0, 1, 2
LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL", "OFF": "CRITICAL"}

log = logging.getLogger("highwater.broker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a broker until it is told to stop; returns the process's exit code."""
    options = _parser().parse_args(arguments)
    _set_up_logging(options.log_level)
    from highwater.kafka.config.checks import ConfigError

    try:
        config = _configuration(options)
        link = _zookeeper_link(config)
    except ConfigError as e:
        for line in e.lines:
            print(line, file=sys.stderr)
        return BAD_CONFIG
    return _run(config, link)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m highwater.broker",
        description="One Kafka-compatible broker.",
        epilog="example: python -I -m highwater.broker --config server.properties",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="FILE",
        help="a server.properties file; of several the later ones win",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one property, which wins over files and environment",
    )
    parser.add_argument(
        "--profile",
        choices=("kafka", "test"),
        help="defaults: Apache Kafka's own, or those of a small, quick cluster",
    )
    parser.add_argument(
        "--environment",
        action="store_true",
        help="read KAFKA_* variables, too (without --config they are always read)",
    )
    parser.add_argument(
        "--log-level",
        default=os.environ.get("KAFKA_LOG4J_ROOT_LOGLEVEL", "INFO"),
        metavar="LEVEL",
        help="DEBUG, INFO, WARN or ERROR",
    )
    return parser  # fmt: skip


def _set_up_logging(level: str) -> None:
    name = level.upper()
    known = LEVELS.get(name, name)
    if known not in logging.getLevelNamesMapping():
        known = "INFO"
    logging.basicConfig(level=known, format=LOG_FORMAT, stream=sys.stdout)
    # as in Kafka's own configuration: the root's level does not turn the request log on
    logging.getLogger("kafka.request.logger").setLevel(logging.WARNING)
    _set_levels(os.environ.get("KAFKA_LOG4J_LOGGERS", ""))
    # kazoo warns of each attempt to connect while ZooKeeper is away; this broker says it once
    logging.getLogger("kazoo").setLevel(max(logging.ERROR, logging.getLogger().level))


def _set_levels(loggers: str) -> None:
    """Applies KAFKA_LOG4J_LOGGERS, such as "kafka.request.logger=DEBUG,broker.log=WARN"."""
    for item in loggers.split(","):
        name, _, level = (part.strip() for part in item.partition("="))
        known = LEVELS.get(level.upper(), level.upper())
        if name and known in logging.getLevelNamesMapping():
            logging.getLogger(name).setLevel(known)
        elif item.strip():
            log.warning("KAFKA_LOG4J_LOGGERS: %r is not NAME=LEVEL", item.strip())


def _configuration(options: argparse.Namespace) -> Config:
    """Reads the configuration in force; raises ConfigError."""
    from highwater.kafka.config.checks import ConfigError
    from highwater.kafka.config.sources import load
    from highwater.world.real.disk import RealDisk

    paths: list[str] = options.config
    if not paths and os.path.exists(SHARED_FILE):
        paths = [SHARED_FILE]
    disk = RealDisk()
    files = []
    for path in paths:
        try:
            files.append((path, disk.read_all(os.path.abspath(path)).decode()))
        except OSError as e:
            line = f"{path}: {e.strerror}; give --config the path of a server.properties"
            raise ConfigError([line]) from e
        except UnicodeDecodeError as e:
            raise ConfigError([f"{path}: not a text file ({e})"]) from e
    use_environment = options.environment or not options.config
    environment = dict(os.environ) if use_environment else {}
    loaded = load(files, environment, options.override, options.profile)
    if loaded.config.broker_id < 0:
        line = "broker.id is not set: ids are not generated; give each broker one of its own"
        raise ConfigError([line])
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.config


def _zookeeper_link(config: Config) -> ZooKeeperLink:
    """Raises ConfigError."""
    from highwater.kafka.security.zookeeper_login import link_to_zookeeper
    from highwater.world.real.disk import RealDisk

    return link_to_zookeeper(config, os.environ, RealDisk())


def _run(config: Config, link: ZooKeeperLink) -> int:
    def stopped_early(*_: object) -> None:
        raise SystemExit(OK)

    # until trio receives signals; process 1 of a container would ignore this one
    signal.signal(signal.SIGTERM, stopped_early)
    gc.disable()  # what is imported stays: to look for garbage in it is a sixth of the start
    import trio

    from highwater.kafka.wire.codecs_only import load_codecs_only

    load_codecs_only()
    prepare_codecs()
    try:
        trio.run(_serve, config, link)
    except SystemExit:
        return OK
    except KeyboardInterrupt:
        return FATAL
    except BaseException as e:
        return _report(config, e)
    return OK


def prepare_codecs() -> None:
    """Prepares the codecs with which a controller begins, and those of clients' first requests."""
    from highwater.broker.handlers import api_versions, find_coordinator, metadata
    from highwater.kafka.wire import codec
    from highwater.kafka.wire import controller_messages as control

    codec.prepare(
        (api_versions.API.key, 3),  # librdkafka's
        (find_coordinator.API.key, 2),
        (metadata.API.key, metadata.API.versions[1]),
        (4, control.LEADER_AND_ISR_VERSION),
        (5, control.STOP_REPLICA_VERSION),
        (6, control.UPDATE_METADATA_VERSION),
    )


async def _serve(config: Config, link: ZooKeeperLink) -> None:
    import trio

    from highwater.base.loop_steps import StepInstrument
    from highwater.broker.measure.garbage import Collector
    from highwater.broker.server import serve
    from highwater.world.real import RealWorld
    from highwater.world.real.clock import StolenTime, cpu_wait_clock, this_thread, thread_time_ns
    from highwater.world.real.process import process_numbers

    gc.enable()
    shutdown, started = trio.Event(), trio.Event()
    doors = os.environ.get("HIGHWATER_FAULT_DOOR"), os.environ.get("HIGHWATER_LINK_DOOR")
    world = RealWorld(door=doors[0], link=link, link_door=doors[1])
    async with trio.open_nursery() as nursery:

        async def signals(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
                task_status.started()
                async for number in received:
                    log.info("%s received", signal.Signals(number).name)
                    if shutdown.is_set() or not started.is_set():
                        nursery.cancel_scope.cancel()  # nothing to hand over, or told twice
                    shutdown.set()

        async def broker(*, task_status: trio.TaskStatus[Services]) -> None:
            host_name = os.uname().nodename
            await serve(
                config, world, shutdown=shutdown, host_name=host_name, task_status=task_status
            )
            nursery.cancel_scope.cancel()

        await nursery.start(signals)
        services = await nursery.start(broker)
        for name, read in process_numbers().items():
            services.metrics.gauge(name, read)
        clock = services.world.clock
        steps = StepInstrument(
            services.metrics.steps,
            clock.perf_ns,
            cpu_wait_clock(),
            thread_time_ns,
            StolenTime(),
            lambda: world.slow_calls.ns,
        )
        trio.lowlevel.add_instrument(steps)
        collector = Collector(clock.perf_ns, services.metrics.steps.note, this_thread())
        collector.begin()
        services.logs.creation.grown = collector.grown
        started.set()
        print(f"started broker {config.broker_id} in process {os.getpid()}", flush=True)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _report(config: Config, error: BaseException) -> int:
    """Writes one line for an expected error; for any other, the traceback and one line."""
    from highwater.broker.membership.registration import BrokerError
    from highwater.kafka.config.checks import ConfigError
    from highwater.kafka.config.listeners import ListenerError

    known = (ConfigError, ListenerError, BrokerError, OSError)
    causes = list(_leaves(error))
    if not all(isinstance(cause, known) for cause in causes):
        log.critical("broker %d had to stop", config.broker_id, exc_info=error)
    cause = next((c for kind in known for c in causes if isinstance(c, kind)), causes[0])
    code = BAD_CONFIG if isinstance(cause, ConfigError | ListenerError) else FATAL
    text = str(cause) or type(cause).__name__
    if isinstance(cause, OSError) and cause.strerror:
        text = f"{cause.filename}: {cause.strerror}" if cause.filename else cause.strerror
    with suppress(OSError):  # the disk that is full may be that of the output, too
        print(f"broker {config.broker_id} stops: {text}", file=sys.stderr, flush=True)
    return code


def leave(code: int) -> NoReturn:
    """Ends with this code, also where the output cannot be written (Python's own would be 120)."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    leave(main())
