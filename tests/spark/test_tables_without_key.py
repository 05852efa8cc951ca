"""Tables without a key under REPLICA IDENTITY FULL: after each step the lake has the source's rows, each as often."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import MergeEngine, Source, Table
from spark_jobs.errors import LakeError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.causes import MISSING_ROW
from spark_jobs.sync import sync
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

EVENT = QualifiedName("public", "event")
MADE = (
    "CREATE TABLE event (kind int, note text, ratio float8, price numeric(10,2), at timestamptz, doc text)",
    "ALTER TABLE event ALTER doc SET STORAGE EXTERNAL",
    "ALTER TABLE event REPLICA IDENTITY FULL",
    "INSERT INTO event SELECT g % 10, 'n' || g % 3, 0, 1.5, NULL, repeat('x', 9000) FROM generate_series(1, 40) g",
    "INSERT INTO event VALUES (NULL, NULL, NULL, NULL, NULL, NULL), (NULL, NULL, NULL, NULL, NULL, NULL)",
    "INSERT INTO event (ratio) VALUES (0), ('-0'), ('-0'), ('NaN'), ('NaN'), ('NaN'), ('Infinity')",
)
ONE = "ctid = (SELECT min(ctid) FROM event WHERE {})"
STEPS: dict[str, tuple[str, ...]] = {
    "equal rows come": ("INSERT INTO event SELECT * FROM event WHERE kind < 3 OR kind IS NULL",),
    "one of several equal rows goes": (
        f"DELETE FROM event WHERE {ONE.format('kind = 1')}",
        f"DELETE FROM event WHERE {ONE.format('kind IS NULL AND ratio IS NULL')}",
    ),
    "one of several equal rows changes, its document does not": (
        f"UPDATE event SET price = 7 WHERE {ONE.format('kind = 2')}",
        f"UPDATE event SET price = 8 WHERE {ONE.format('kind = 2 AND price = 7')}",
    ),
    "minus zero and not a number": (
        f"DELETE FROM event WHERE {ONE.format(chr(39).join(('ratio::text = ', '-0', '')))}",
        f"DELETE FROM event WHERE {ONE.format(chr(39).join(('ratio = ', 'NaN', '')))}",
        f"UPDATE event SET ratio = '-0' WHERE {ONE.format('kind = 3')}",
    ),
    "a row that comes and goes": ("INSERT INTO event (kind) VALUES (77)", "DELETE FROM event WHERE kind = 77"),
    "all rows change": ("UPDATE event SET note = note || '!', at = '2024-02-29 12:00+00'",),
    "all of one kind go": ("DELETE FROM event WHERE kind = 5",),
    "truncated in the middle": (
        "UPDATE event SET note = 'lost'",
        "TRUNCATE event",
        "INSERT INTO event (kind, note) VALUES (1, 'a'), (1, 'a'), (2, 'b')",
        f"DELETE FROM event WHERE {ONE.format('kind = 1')}",
        "UPDATE event SET note = 'c' WHERE kind = 2",
    ),
    "truncated": ("TRUNCATE event",),
    "inserts alone": ("INSERT INTO event (kind, doc) SELECT g / 2, repeat('y', 5000) FROM generate_series(1, 20) g",),
}


def assert_equal(followed: Followed) -> None:
    """NaN is no NaN to Python, and 0 is -0: what is printed differs."""
    lake, columns = followed.lake_rows(EVENT)
    source = followed.source_rows(EVENT, columns)
    assert Counter(map(_printed, lake)) == Counter(map(_printed, source))


def _printed(row: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(map(str, row))


@pytest.mark.parametrize(
    ("engine", "on_driver_bytes"),
    [("auto", 128 << 20), at_night("spark", 128 << 20), at_night("spark", 0)],
    ids=["without Spark", "on_driver", "on_executors"],
)
def test_each_step(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, on_driver_bytes: int
) -> None:
    database.execute(*MADE)
    followed = Followed.start(spark, database, tmp_path / "lake", "event")
    pipeline = replace(followed.pipeline, merge_engine=engine)
    followed = replace(followed, pipeline=pipeline, on_driver_bytes=on_driver_bytes)
    assert [taken.error for taken in followed.snapshot()] == [None]
    assert_equal(followed)
    for step, statements in STEPS.items():
        database.execute(*statements)
        (applied,) = followed.sync()
        assert applied.error is None, (step, applied.error)
        assert_equal(followed)


@pytest.mark.parametrize("plugin", ["pgoutput", at_night("test_decoding")])
def test_random_changes_and_ddl_between_them(
    spark: SparkSession, database: Database, tmp_path: Path, plugin: str
) -> None:
    """Columns are added, renamed and dropped between the changes of one range: with pgoutput no snapshot is taken."""
    database.execute(*MADE)
    made = pipeline_of(database, tmp_path / "lake", "public.event")
    source = replace(made.source, plugin="test_decoding") if plugin == "test_decoding" else made.source
    assert isinstance(source, Source)
    followed = Followed(spark, database, replace(made, source=source), (EVENT,))
    chance = random.Random(7)  # noqa: S311
    assert sync(followed.pipeline, lambda: spark).errors == ()
    altered = [
        "ALTER TABLE event ADD COLUMN extra int DEFAULT 5",
        "ALTER TABLE event RENAME COLUMN note TO remark",
        "ALTER TABLE event DROP COLUMN at",
    ]
    for number in range(3):
        for _ in range(30):
            kind, other = chance.randrange(10), chance.randrange(10)
            database.execute(
                chance.choice(
                    [
                        f"INSERT INTO event (kind, ratio) VALUES ({kind}, {other})",
                        f"INSERT INTO event SELECT * FROM event WHERE kind = {kind} LIMIT 2",
                        f"DELETE FROM event WHERE {ONE.format(f'kind = {kind}')}",
                        f"UPDATE event SET kind = {other} WHERE {ONE.format(f'kind = {kind}')}",
                        f"UPDATE event SET price = price + 1 WHERE kind = {kind}",
                    ]
                )
            )
        if number:
            database.execute(altered.pop(0), "UPDATE event SET kind = kind + 1 WHERE kind < 4")
        report = sync(followed.pipeline, lambda: spark)
        assert report.errors == ()
        if plugin == "pgoutput":
            assert report.snapshots == ()
        assert_equal(followed)


def test_rows_are_verified_and_a_lake_that_lacks_one_stops(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(*MADE)
    followed = Followed(spark, database, pipeline_of(database, tmp_path / "lake", "public.event"), (EVENT,))
    assert sync(followed.pipeline, lambda: spark).errors == ()
    for how in (Thoroughness(), Thoroughness(quick=True)):
        (verified,) = verify(followed.pipeline, lambda: spark, how=how).tables
        assert (verified.verdict, verified.error) == ("equal", None)
    path = followed.pipeline.lake.table(EVENT)
    spark.sql(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}` WHERE kind = 4 LIMIT 1")
    spark.sql(f"UPDATE delta.`{path}` SET price = 3 WHERE isnan(ratio)")
    for how in (Thoroughness(), Thoroughness(quick=True)):
        (verified,) = verify(followed.pipeline, lambda: spark, how=how).tables
        assert verified.verdict == "different"
        counts = verified.counts
        assert counts is not None
        assert (counts.missing, counts.extra, counts.changed) == (3, 4, 0)
    database.execute("DELETE FROM event WHERE ratio = 'NaN'")
    report = sync(followed.pipeline, lambda: spark)
    (error,) = report.errors
    assert isinstance(error, LakeError)
    assert f"were not applied: {MISSING_ROW}: if somebody else has written this table" in str(error)


@pytest.mark.parametrize("plugin", ["pgoutput", "test_decoding"])
def test_a_declared_key_while_its_index_bears_it_out(
    spark: SparkSession, database: Database, tmp_path: Path, plugin: str
) -> None:
    database.execute(
        "CREATE TABLE event (id int NOT NULL, note text, doc text)",
        "CREATE UNIQUE INDEX numbered ON event (id)",
        "ALTER TABLE event ALTER doc SET STORAGE EXTERNAL",
        "ALTER TABLE event REPLICA IDENTITY FULL",
        "INSERT INTO event SELECT g, 'n', repeat('x', 5000) FROM generate_series(1, 20) g",
    )
    made = pipeline_of(database, tmp_path / "lake", "public.event")
    source = replace(made.source, plugin="test_decoding") if plugin == "test_decoding" else made.source
    pipeline = replace(made, source=source, tables=(Table(EVENT, mode="soft_delete", key=("id",)),))
    followed = Followed(spark, database, pipeline, (EVENT,))
    assert sync(pipeline, lambda: spark).errors == ()

    database.execute(
        "UPDATE event SET note = 'changed' WHERE id < 5",
        "UPDATE event SET id = id + 100 WHERE id = 7",
        "DELETE FROM event WHERE id = 20",
        "INSERT INTO event VALUES (21, 'new', NULL)",
    )
    report = sync(pipeline, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    followed.assert_equal()
    held = spark.read.format("delta").load(pipeline.lake.table(EVENT))
    assert sorted(row["id"] for row in held.where("_deleted_at IS NOT NULL").collect()) == [7, 20]

    # equal rows come and go while there is no index: by its key a delete would take both
    database.execute(
        "DROP INDEX numbered",
        "INSERT INTO event SELECT * FROM event WHERE id = 3",
        "DELETE FROM event WHERE ctid = (SELECT max(ctid) FROM event WHERE id = 3)",
    )
    (error,) = sync(pipeline, lambda: spark).errors
    assert "has no unique index on exactly id, all of them NOT NULL, as key: says" in str(error)
    database.execute("CREATE UNIQUE INDEX numbered ON event (id)", "DELETE FROM event WHERE id = 4")
    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    assert [taken.name for taken in report.snapshots] == [EVENT]
    followed.assert_equal()
