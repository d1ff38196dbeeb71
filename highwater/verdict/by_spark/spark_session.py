"""A Spark session for the checks: quiet, and with settings that fit the data and the cores.

What the user sets (--conf, spark-defaults.conf, --master) is never changed.  A chaos run is small:
Spark spends its time on planning, on starting tasks, and on compiling code that runs once.  So
below SMALL_BYTES every table is one partition (then no join, no group and no window moves data),
nothing is compiled, plans are final, and as many checks are planned and run at a time as there are
cores.  Above it, data is hashed over a few partitions for each core, and compiling pays.
docs/spark.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES: Final = 128 << 20
"""The size of a history in JSON, some 300,000 lines; as Parquet it has about a tenth of that."""
PARQUET_SHRINKS: Final = 10
MAX_AT_A_TIME: Final = 8

STATIC: Final = {
    "spark.scheduler.mode": "FAIR",  # checks that run side by side share the cores
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.debug.maxToStringFields": "1000",
    # each query is also written out for the UI, which costs as much as planning it
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "2000",
}
QUIET: Final = (
    "org.apache.hadoop.util.NativeCodeLoader",  # Hadoop's native code, which nothing here needs
    "org.apache.spark.scheduler.FairSchedulableBuilder",  # one line a pool
    "org.apache.spark.sql.execution.window.WindowExec",  # a constant kind is no partition to it
    "org.apache.spark.sql.catalyst.util.StringUtils",  # plans that are cut short, as is wanted here
    "org.apache.kafka.clients",  # the source asks for offsets with defaults, and says so at length
)
"""Loggers whose warnings help no reader."""
SMALL: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}

LARGE: Final = {
    # plans keep the partitions of the views upon which they stand, so that nothing is moved twice
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How the checks are spread over Spark's tasks."""

    small: bool
    partitions: int
    """The partitions of every shared view."""
    at_a_time: int
    """How many checks are planned and run side by side."""
    settings: dict[str, str]
    """Settings of Spark, for those that the user has not set."""


def shape_of(json_bytes: int, cores: int) -> Shape:
    """`json_bytes`: the size of the history as JSON lines, or what it would be."""
    at_a_time = max(1, min(cores, MAX_AT_A_TIME))
    if json_bytes < SMALL_BYTES:
        return Shape(True, 1, at_a_time, SMALL)
    partitions = 4 * cores
    settings = LARGE | {"spark.sql.shuffle.partitions": str(partitions)}
    return Shape(False, partitions, at_a_time, settings)


def open_session(name: str) -> SparkSession:
    """Opens the session of this process, without INFO lines on the way."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # so that SparkConf sees what the user set
    conf = SparkConf()
    for name_, value in STATIC.items():
        conf.setIfMissing(name_, value)
    jvm: Any = SparkContext._jvm
    if not conf.contains("spark.log.level") and not _has_own_log4j(jvm):
        _hush(jvm, conf)
    return SparkSession.builder.appName(name).config(conf=conf).getOrCreate()


def tune(spark: SparkSession, shape: Shape) -> None:
    asked = spark.sparkContext.getConf()
    for name, value in shape.settings.items():
        if not asked.contains(name):
            spark.conf.set(name, value)


def _hush(jvm: Any, conf: Any) -> None:
    """Hides everything below a warning from here on."""
    conf._jconf.log()  # with its first logger, Spark's own configuration would replace this one
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setRootLevel(log4j.Level.WARN)
    for name in QUIET:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def quiet(loggers: Sequence[str]) -> None:
    """Hides these loggers, unless the user asked for a log of their own."""
    from pyspark import SparkConf, SparkContext

    jvm: Any = SparkContext._jvm
    if SparkConf().contains("spark.log.level") or _has_own_log4j(jvm):
        return
    log4j = jvm.org.apache.logging.log4j
    for name in loggers:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def _has_own_log4j(jvm: Any) -> bool:
    """Whether the user has a log configuration of their own, whose levels then hold."""
    properties = ("log4j2.configurationFile", "log4j.configurationFile")
    if any(jvm.System.getProperty(name) for name in properties):
        return True
    loader = jvm.Thread.currentThread().getContextClassLoader()
    return loader.getResource("log4j2.properties") is not None
