"""A net change that touches much of its table rewrites the table: the same rows as by a MERGE, in one commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import MergeEngine
from spark_jobs.errors import LakeError
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.storage import Location
from spark_jobs.writers.with_spark import spark_writer
from spark_jobs.writers.with_spark.spark_writer import newest_version
from tests.at_night import at_night
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TABLES = {
    "by_number": "id bigint PRIMARY KEY, n int, t text",
    "by_two": 'part text, "Id ;" int, n int, t text, PRIMARY KEY (part, "Id ;")',
    "by_float": "f float8 PRIMARY KEY, n int, t text",
    "all_key": "id int, t text, PRIMARY KEY (id, t)",
}
_CHANGES = {
    "by_number": (
        "UPDATE by_number SET n = n + 1, t = t || '!' WHERE id % 2 = 0",
        "DELETE FROM by_number WHERE id % 10 = 0",
        "INSERT INTO by_number SELECT g, g, 'new' FROM generate_series(201, 250) g",
        "INSERT INTO by_number VALUES (10, NULL, 'again')",
        "INSERT INTO by_number VALUES (999, 1, 'gone')",
        "DELETE FROM by_number WHERE id = 999",
    ),
    "by_two": (
        "UPDATE by_two SET n = -1 WHERE part = 'a'",
        "DELETE FROM by_two WHERE part = 'b' AND \"Id ;\" < 20",
        "INSERT INTO by_two VALUES ('', 0, NULL, NULL)",
    ),
    "by_float": (
        "UPDATE by_float SET n = 7",
        "DELETE FROM by_float WHERE f = 'NaN'",
        "UPDATE by_float SET f = 'NaN' WHERE f = 'Infinity'",
    ),
    "all_key": (
        "DELETE FROM all_key WHERE id % 2 = 0",
        "INSERT INTO all_key SELECT 2, g::text FROM generate_series(1, 9) g",
    ),
}


# as if every net change were large
ALWAYS = WriteLimits(rewritten_rows=0, rewritten_share=0.0, streamed_share=0.0, read_ahead_bytes=0)


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    """``TABLES`` with rows, after their snapshot."""
    database.execute(*(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
    database.execute(
        "INSERT INTO by_number SELECT g, g, 'row ' || g FROM generate_series(1, 200) g",
        "INSERT INTO by_two SELECT p, g, g, p FROM generate_series(1, 40) g, (VALUES ('a'), ('b'), ('c')) AS parts(p)",
        "INSERT INTO by_float VALUES ('NaN', 1, 'x'), ('Infinity', 2, 'y'), (0, 3, 'z'), (1.5, 4, NULL)",
        "INSERT INTO all_key SELECT g, 'k' FROM generate_series(1, 30) g",
    )
    found = Followed.start(spark, database, tmp_path / "lake", *TABLES)
    assert [taken.error for taken in found.snapshot()] == [None] * len(TABLES)
    return found


def _limited(followed: Followed, limits: WriteLimits, engine: MergeEngine = "spark") -> Followed:
    return replace(followed, pipeline=replace(followed.pipeline, writes=limits, merge_engine=engine))


def _assert_equal(followed: Followed) -> None:
    """By the server's and Spark's equality, by which NaN equals NaN."""
    assert all(found.equal for found in compare(followed.spark, followed.pipeline, followed.names, by_spark=True))


def _newest_operation(followed: Followed, table: str) -> str:
    (newest,) = DeltaTable(f"{followed.pipeline.lake.path}/tables/public/{table}").history(1)
    return str(newest["operation"])


@pytest.mark.parametrize("writer", ["the driver", "Spark", at_night("Spark, with the net change of executors")])
def test_the_rows_are_those_of_the_source(followed: Followed, writer: str) -> None:
    engine: MergeEngine = "auto" if writer == "the driver" else "spark"
    followed = _limited(followed, ALWAYS, engine)
    if writer.endswith("executors"):
        followed = replace(followed, on_driver_bytes=0)
    for statements in _CHANGES.values():
        followed.database.execute(*statements)
    applied = followed.sync()
    assert [done.error for done in applied] == [None] * len(TABLES)
    _assert_equal(followed)
    assert {_newest_operation(followed, table) for table in TABLES} == {"WRITE"}
    here = set(TABLES) if writer == "the driver" else set()
    assert {done.name.relname for done in applied if done.engine == "deltalake"} == here
    followed.database.execute("DELETE FROM all_key WHERE id = 2", "DELETE FROM by_two WHERE part = ''")
    followed.database.execute("DELETE FROM by_number WHERE id = 10 OR id > 200", "DELETE FROM by_float")
    followed.database.execute("INSERT INTO by_float VALUES ('NaN', 1, 'x'), ('Infinity', 2, 'y'), ('-0', 3, 'z')")
    due = _limited(followed, replace(ALWAYS, compact_every=1), engine)  # for a compaction, too
    assert [done.error for done in due.sync()] == [None] * len(TABLES)
    _assert_equal(followed)


def test_values_that_stay_and_readers_of_single_rows_need_a_merge(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE documents (id int PRIMARY KEY, n int, doc text)",
        "ALTER TABLE documents ALTER doc SET STORAGE EXTERNAL",
        "CREATE TABLE fed (id int PRIMARY KEY, n int)",
        "INSERT INTO documents SELECT g, g, repeat(md5(g::text), 200) FROM generate_series(1, 9) g",
        "INSERT INTO fed SELECT g, g FROM generate_series(1, 9) g",
    )
    followed = _limited(Followed.start(spark, database, tmp_path / "lake", "documents", "fed"), ALWAYS)
    followed.snapshot()
    path = f"{followed.pipeline.lake.path}/tables/public/fed"
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    database.execute("UPDATE documents SET n = 0", "UPDATE fed SET n = 0")
    assert [done.error for done in followed.sync()] == [None, None]
    _assert_equal(followed)
    assert _newest_operation(followed, "documents") == _newest_operation(followed, "fed") == "MERGE"
    database.execute("UPDATE documents SET n = 1, doc = 'short'")
    followed.sync()
    _assert_equal(followed)
    assert _newest_operation(followed, "documents") == "WRITE"


def test_a_small_part_of_the_rows_is_merged(followed: Followed) -> None:
    followed = _limited(followed, WriteLimits(rewritten_rows=10))
    followed.database.execute("UPDATE by_number SET n = 0 WHERE id <= 40", "UPDATE by_two SET n = 0 WHERE part = 'a'")
    applied = followed.sync()
    assert [done.error for done in applied] == [None] * len(TABLES)
    strategies = {done.name.relname: done.strategy for done in applied}
    assert (strategies["by_number"], strategies["by_two"], strategies["all_key"]) == ("merge", "rewrite", None)
    _assert_equal(followed)
    assert _newest_operation(followed, "by_number") == "MERGE"
    assert _newest_operation(followed, "by_two") == "WRITE"


def test_another_writer_between_the_choice_and_the_write(
    spark: SparkSession, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = replace(_limited(followed, ALWAYS), names=followed.names[:1])
    path = f"{followed.pipeline.lake.path}/tables/public/by_number"

    def meanwhile(statement: str) -> Callable[[Location], int]:
        def choose(asked: Location) -> int:
            version = newest_version(asked)
            if asked.endswith("by_number"):
                spark.sql(statement)
            return version

        return choose

    followed.database.execute("UPDATE by_number SET n = 5 WHERE id % 2 = 1")
    with monkeypatch.context() as other:
        other.setattr(spark_writer, "newest_version", meanwhile(f"OPTIMIZE delta.`{path}` ZORDER BY (id)"))
        assert [each.error for each in followed.sync()] == [None]
    _assert_equal(followed)
    followed.database.execute("UPDATE by_number SET n = 6 WHERE id % 2 = 1")
    with monkeypatch.context() as other:
        other.setattr(spark_writer, "newest_version", meanwhile(f"DELETE FROM delta.`{path}` WHERE id = 2"))
        errors = [each.error for each in followed.sync() if each.error]
    assert len(errors) == 1
    assert isinstance(errors[0], LakeError)
    assert "of another writer was undone by commit" in str(errors[0])
    # the commit itself is right, and the table goes on
    followed.database.execute("UPDATE by_number SET n = 7 WHERE id % 2 = 1")
    assert [each.error for each in followed.sync()] == [None]
    _assert_equal(followed)
