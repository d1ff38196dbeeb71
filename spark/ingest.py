"""Reads whole topics from a Kafka-compatible cluster into Parquet: the independent witness's full
read.

    spark-submit --jars JARS spark/ingest.py --bootstrap HOST:9092 --topics a,b --out RUN/consumed

The reader is Apache Kafka's own Java client inside Spark's Kafka source, from the earliest offset
to the latest at the time of the call.  Nothing of Highwater is imported here, so that one
misunderstanding of the protocol cannot hide in both the cluster and its witness.  Works with any
--master; JARS is spark-sql-kafka-0-10 and what it needs (or use --packages
org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0).
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_topics(spark: SparkSession, bootstrap: str, topics: list[str], out: str) -> int:
    """Writes the Parquet files (topic, partition, offset, key, value, timestamp), replacing older
    ones; records read.
    """
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option(
            "failOnDataLoss", "true"
        )  # an offset that vanishes under the reader is an error, not a gap
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.request.timeout.ms", "10000")
        .option("kafka.default.api.timeout.ms", "20000")  # a cluster that is gone is told in 20 s
        .load()
    )
    records.selectExpr(
        "topic",
        "partition",
        "offset",
        "CAST(key AS STRING) AS key",
        "CAST(value AS STRING) AS value",
        "timestamp",
    ).write.mode("overwrite").parquet(out)
    return int(spark.read.parquet(out).count())


def reason(error: Exception) -> str:
    """The line of a Java stack trace that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or [type(error).__name__])[0][:300]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Reads whole topics through Spark's Kafka source into Parquet.",
        epilog="example: spark-submit --jars JARS spark/ingest.py "
        "--bootstrap 127.0.0.1:9092 --topics orders --out consumed",
    )
    parser.add_argument("--bootstrap", required=True, help="bootstrap servers, host:port,...")
    parser.add_argument("--topics", required=True, help="topics, separated by commas")
    parser.add_argument(
        "--out", required=True, help="folder for the Parquet files (any path that Spark can write)"
    )
    args = parser.parse_args()

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("highwater-ingest").getOrCreate()
    began = time.monotonic()
    try:
        count = read_topics(spark, args.bootstrap, args.topics.split(","), args.out)
    except Exception as error:
        print(
            f"ingest: {args.topics} could not be read from {args.bootstrap}: {reason(error)}",
            file=sys.stderr,
        )
        return 1
    finally:
        took = time.monotonic() - began
    print(
        f"ingest: {count} records of {args.topics} from {args.bootstrap} "
        f"into {args.out}, {took:.1f} s",
        flush=True,
    )
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
