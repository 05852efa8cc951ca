"""The command alone: from nothing to equal, and again after more changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.qualified_name import QualifiedName
from tests.cli.command import SPARK, configured, run_here
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def _spark_options(jars_folder: Path) -> dict[str, object]:
    return {"master": "local[2]", "jars": str(jars_folder)}


def test_from_nothing_to_equal(
    database: Database, spark: SparkSession, jars_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = (QualifiedName("public", "orders"), QualifiedName("public", "items"))
    lake = Followed(spark, database, pipeline_of(database, tmp_path / "lake"), names)
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
        "CREATE TABLE items (sku text PRIMARY KEY, price numeric(10,2))",
        "INSERT INTO orders SELECT n, 'note ' || n FROM generate_series(1, 100) n",
        "INSERT INTO items VALUES ('a', 1.50)",
    )
    tables = ["public.orders", "public.items"]
    command = configured(tmp_path, database.dsn, database.name, tables, spark=_spark_options(jars_folder), merge=SPARK)

    here = run_here(command, spark, capfd)

    assert here("doctor").exit_code == 0
    first = command("sync", "--json")
    assert first.exit_code == 0, first.stderr
    assert first.stderr == ""
    assert {table["name"]: table["rows"] for table in first.document["snapshots"]} == {
        "public.orders": 100,
        "public.items": 1,
    }
    lake.assert_equal()

    database.execute(
        "UPDATE orders SET note = NULL WHERE id <= 10",
        "DELETE FROM orders WHERE id > 90",
        "INSERT INTO items VALUES ('b', 2)",
    )
    captured = command("capture", "--json", without_java=True)
    assert captured.exit_code == 0, captured.stderr
    assert captured.document["caught_up"]
    behind = {table["name"]: table["pending_changes"] for table in command("status", "--json").document["tables"]}
    assert behind == {"public.orders": 20, "public.items": 1}

    applied = here("apply", "--json")
    assert applied.exit_code == 0, applied.stderr
    counts = {
        table["name"]: (table["inserts"], table["updates"], table["deletes"]) for table in applied.document["tables"]
    }
    assert counts == {"public.orders": (0, 10, 10), "public.items": (1, 0, 0)}
    lake.assert_equal()
    status = command("status", "--json").document
    assert [table["pending_changes"] for table in status["tables"]] == [0, 0]

    again = command("sync", "--json")
    assert again.exit_code == 0
    assert {table["outcome"] for table in again.document["tables"]} == {"nothing to apply"}
