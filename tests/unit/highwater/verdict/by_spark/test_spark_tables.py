"""What the tables do where Spark is another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from highwater.verdict.by_spark.spark_tables import alone

pytest.importorskip("pyspark")


def test_with_another_spark_the_rows_stay_with_their_query() -> None:
    def no_class(*_: Any) -> Any:
        raise TypeError("'JavaPackage' object is not callable")

    classic = SimpleNamespace(Dataset=SimpleNamespace(ofRows=no_class))
    spark = SimpleNamespace(sql=SimpleNamespace(classic=classic))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm), _jsparkSession=None)
    plan = SimpleNamespace(withCachedData=lambda: SimpleNamespace(newInstance=lambda: None))
    kept: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: plan))
    assert alone(session, kept) is kept
