"""``plugin: test_decoding`` end to end: no publication, lines of text in the log, a lake that equals the source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.errors import CdcError
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed
from tests.spark.scenarios import SCENARIOS, make_item
from tests.text_workload import FOLLOWED, SCHEMA, workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def followed_by_lines(spark: SparkSession, database: Database, lake: Path, *tables: str) -> Followed:
    pipeline = pipeline_of(database, lake, *tables, plugin="test_decoding")
    followed = Followed(spark, database, pipeline, tuple(map(QualifiedName.parse, tables)))
    assert synced(followed).errors == ()
    assert database.execute("SELECT 1 FROM pg_publication") == []
    return followed


def synced(followed: Followed) -> SyncReport:
    return sync(followed.pipeline, lambda: followed.spark)


@pytest.mark.parametrize(
    "on_driver_bytes", [WriteLimits.on_driver_bytes, at_night(0)], ids=["on the driver", "on executors"]
)
def test_scenarios(spark: SparkSession, database_15: Database, tmp_path: Path, on_driver_bytes: int) -> None:
    make_item(database_15)
    followed = replace(
        followed_by_lines(spark, database_15, tmp_path / "lake", "item"), on_driver_bytes=on_driver_bytes
    )
    for scenario, statements in SCENARIOS.items():
        database_15.execute(*statements)
        (applied,) = followed.sync()
        assert applied.error is None, (scenario, applied.error)
        followed.assert_equal()


def test_tables_of_every_kind(spark: SparkSession, database_15: Database, tmp_path: Path) -> None:
    """Hostile names, FULL identity with nulls, partitions, a generated column; then DDL."""
    database_15.execute(*SCHEMA)
    # values of every type are compared in tests/capture/test_decoding/test_capture.py
    followed = followed_by_lines(spark, database_15, tmp_path / "lake", *(name for name in FOLLOWED if name != "typed"))
    workload(database_15)
    assert synced(followed).errors == ()
    followed.assert_equal()
    database_15.execute(
        "INSERT INTO whole SELECT g FROM generate_series(100, 110) g",
        "UPDATE whole SET doc = repeat('x', 9000)",
        "UPDATE whole SET n = 7",  # keeps the documents
        "INSERT INTO parted VALUES (9, '2024-01-05', 'x'), (9, '2024-02-05', 'x')",
        "INSERT INTO plain VALUES (500, 'x')",
        # what lines do not tell costs these tables a new snapshot
        "INSERT INTO computed VALUES (50)",
        "ALTER TABLE computed ADD added int DEFAULT 5",
        "INSERT INTO computed (id) VALUES (51)",
        "TRUNCATE parted_1",
        "INSERT INTO child VALUES (88)",
        "DROP TABLE child",
    )
    report = synced(followed)
    reasons = {str(table.name): table.reason for table in report.snapshots}
    assert set(reasons) == {"public.computed", "public.parted"}
    assert "column added was added" in reasons["public.computed"]
    assert "empties one partition of public.parted" in reasons["public.parted"]
    (error,) = report.errors
    assert_says(error, "there is no table public.child")
    names = tuple(name for name in followed.names if str(name) != "public.child")
    replace(followed, names=names).assert_equal()


def assert_says(error: CdcError | None, *words: str) -> None:
    text = str(error)
    assert all(word in text for word in words), text
    assert "\n" not in text
