"""What the driver computes for small ranges, executors compute for large ones: the same rows, in one commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.errors import UnrepresentableError
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed
from tests.spark.scenarios import SCENARIOS, make_item

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.mark.nightly  # by day on a cluster: test_on_cluster
@pytest.mark.usefixtures("read_by_executors")
def test_executors_do_what_the_driver_does(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    make_item(database)
    followed = replace(Followed.start(spark, database, tmp_path / "lake", "item"), on_driver_bytes=0)
    assert [taken.error for taken in followed.snapshot()] == [None]
    for scenario, statements in SCENARIOS.items():
        database.execute(*statements)
        (applied,) = followed.sync()
        assert applied.error is None, (scenario, applied.error)
        followed.assert_equal()
    staging = Path(followed.pipeline.lake.path, "_staging")
    assert [left for left in staging.rglob("*") if left.is_file()] == []
    database.execute("INSERT INTO item (id, at) VALUES (1, 'infinity')")
    (refused,) = followed.sync()
    assert isinstance(refused.error, UnrepresentableError)
    assert [left for left in staging.rglob("*") if left.is_file()] == []
