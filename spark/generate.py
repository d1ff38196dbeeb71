"""Makes a history of N operations by Spark, with anomalies at known places, as RUN/tables of a run.

    spark-submit spark/generate.py runs/large --operations 1000000
    spark-submit spark/verify.py runs/large

RUN/planted.json lists what the checks have to find: check, topic, partition, offset.  With --skew
0.9 nine tenths of everything are in one partition.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

# Highwater is beside this folder (a clone), around it (a wheel), or comes by --py-files
for place in Path(__file__).resolve().parents[1:3]:
    if (place / "highwater" / "__init__.py").is_file():
        sys.path.insert(0, str(place))

from highwater.verdict.by_spark import spark_session  # noqa: E402
from highwater.verdict.by_spark.spark_store import Store  # noqa: E402
from highwater.verdict.generated import Shape, TooSmall, query  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="spark-submit spark/generate.py",
        description="Makes a history of N operations, two rows each, with anomalies planted.",
        epilog="example: spark-submit spark/generate.py runs/large --operations 1000000",
    )
    parser.add_argument("run", metavar="RUN", help="folder: any path that Spark can write")
    parser.add_argument("--operations", type=int, required=True, help="sends and polls")
    parser.add_argument("--partitions", type=int, default=12, help="4 or more (default 12)")
    parser.add_argument(
        "--skew", type=float, default=0.0, help="share of partition 0 (default even)"
    )
    parser.add_argument("--anomalies", type=int, default=5, help="of each kind (default 5)")
    args = parser.parse_args()
    if args.partitions < 4 or not 0 <= args.skew < 1:
        parser.error("--partitions is 4 or more, and --skew from 0 to below 1")
    shape = Shape(args.operations, args.partitions, args.skew, args.anomalies)
    try:
        sql = query(shape)
    except TooSmall as error:
        parser.error(str(error))
    began = time.monotonic()
    spark = spark_session.open_session("highwater-generate")
    store = Store(spark)
    spark.range(shape.records).createOrReplaceTempView("ids")
    history = spark.sql(sql)
    history.write.mode("overwrite").parquet(f"{args.run}/tables/history.parquet")
    store.write(f"{args.run}/run.json", json.dumps(shape.info(), indent=1) + "\n")
    store.write(f"{args.run}/planted.json", shape.planted())
    rows = spark.read.parquet(f"{args.run}/tables/history.parquet").count()
    size = store.bytes_in(f"{args.run}/tables")
    seconds = time.monotonic() - began
    print(f"generate: {rows:,} rows, {size / 2**20:.0f} MiB in {seconds:.1f} s", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
