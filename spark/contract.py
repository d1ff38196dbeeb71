"""The verdict on a user's own topics, by Spark: whether they keep what a contract demands.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 spark/contract.py \
        orders.json --bootstrap 127.0.0.1:9092
    spark-submit spark/contract.py orders.json --consumed FOLDER

The contract (JSON, or YAML where PyYAML is installed) and --out are any paths that Spark can read
and write, and --master is anything.  Prints the table of `highwater verify --contract`, writes the
verdict, and ends with 0 (valid), 1 (invalid), 2 (void) or 3 (the topics cannot be checked).
docs/contract.md is the page on contracts.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Highwater is beside this folder (a clone), around it (a wheel), or comes by --py-files
for place in Path(__file__).resolve().parents[1:3]:
    if (place / "highwater" / "__init__.py").is_file():
        sys.path.insert(0, str(place))

from highwater.verdict.contracts.spark_contract import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
