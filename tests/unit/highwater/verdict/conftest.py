from __future__ import annotations

from collections.abc import Iterator

import pytest

from highwater.verdict.by_spark.spark_submit import QUICK_JAVA


@pytest.fixture(scope="module")
def java() -> Iterator[None]:
    """One Java for all tests of a file: a session in it starts quickly, and Spark's settings do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv(
            "PYSPARK_SUBMIT_ARGS",
            f"--master local[2] --driver-java-options '{QUICK_JAVA}'"
            " --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
            " pyspark-shell",
        )
        yield
