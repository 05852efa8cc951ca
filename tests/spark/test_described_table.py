"""Columns and row counts without Spark are those that Spark finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.storage import Location
from spark_jobs.writers.table_features import DELETION_VECTORS, MAPPED_NAMES
from spark_jobs.writers.with_arrow.described_table import described_table
from spark_jobs.writers.with_spark.delta_table import add_features, replace_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def path(tmp_path: Path) -> Location:
    return Location.of(str(tmp_path / "table"))


def assert_as_spark_finds(spark: SparkSession, path: Location, rows: int) -> None:
    frame, described = spark.read.format("delta").load(path), described_table(path)
    assert described is not None
    assert list(described.columns) == frame.dtypes
    assert described.rows == frame.count() == rows


def test_deleted_rows_and_renamed_columns(spark: SparkSession, path: Location) -> None:
    every_type = (
        "id, cast(id as int) i, cast(id as smallint) s, cast(id as decimal(12,2)) d, cast(id as float) f, true b,"
        " date'2024-01-01' day, timestamp'2024-01-01' at, timestamp_ntz'2024-01-01' ntz, binary('x') bytes,"
        " array(id) ids"
    )
    replace_table(spark.range(1000).repartition(3).selectExpr(*every_type.split(", ")), path)
    assert_as_spark_finds(spark, path, 1000)
    add_features(spark, path, [*MAPPED_NAMES, DELETION_VECTORS])
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 3 = 0")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN day TO `a day`")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 5 = 0")
    assert_as_spark_finds(spark, path, 533)
    spark.sql(f"DELETE FROM delta.`{path}`")
    assert_as_spark_finds(spark, path, 0)


def test_variants_and_paths_that_only_spark_can_open(spark: SparkSession, tmp_path: Path, path: Location) -> None:
    assert described_table(path) is None
    replace_table(spark.range(3).selectExpr("id", "parse_json('1') doc"), path)
    assert_as_spark_finds(spark, path, 3)
    percent = Location.of(str(tmp_path / "a%20b"))
    replace_table(spark.range(3).toDF("id"), percent)
    assert described_table(percent) is None
