"""The comparison that tests and benchmarks end with: it sees what differs, and nothing where nothing does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.sync import sync
from tests.fixtures.row_compare import Comparison, compare
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    database.execute(
        "CREATE TABLE kinds (id int, part char(3), ratio float8, price numeric(10,2), doc jsonb,"
        " PRIMARY KEY (part, id))",
        "INSERT INTO kinds SELECT g, 'x', g / 7.0, g, '{}' FROM generate_series(1, 7) g",
        "INSERT INTO kinds VALUES (8, 'y', 'NaN', NULL, '[1, 2]'), (9, 'y', '-0', 0, NULL)",
        "INSERT INTO kinds VALUES (10, 'z', '-Infinity', 1, '1')",
    )
    followed = Followed.start(spark, database, tmp_path / "lake", "kinds")
    assert sync(followed.pipeline, lambda: spark).errors == ()
    return followed


def test_each_difference_is_seen(followed: Followed) -> None:
    assert compared(followed) == Comparison(followed.names[0], 10, 10, ())
    lake = f"delta.`{followed.pipeline.lake.table(followed.names[0])}`"
    for change, differing in (
        (f"UPDATE {lake} SET ratio = 0 WHERE id = 9", ("ratio",)),  # was -0
        (f"UPDATE {lake} SET doc = 'null', price = NULL WHERE id = 3", ("ratio", "price", "doc")),
        (f"UPDATE {lake} SET part = 'x' WHERE id = 1", ("part", "ratio", "price", "doc")),  # was padded
    ):
        followed.spark.sql(change)
        assert compared(followed).differing_columns == differing
    followed.spark.sql(f"DELETE FROM {lake} WHERE id = 10")
    missing = compared(followed)
    assert (missing.source_rows, missing.lake_rows, missing.equal) == (10, 9, False)


def compared(followed: Followed) -> Comparison:
    (found,) = compare(followed.spark, followed.pipeline, followed.names)
    return found
