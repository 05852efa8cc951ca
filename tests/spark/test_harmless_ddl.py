"""DDL that leaves rows and columns as they are: between rows it costs nothing, alone it does not touch the lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import fresh_database
from tests.spark.altered_tables import (
    Altered,
    altering,
    assert_equal,
    in_public,
    making,
    partitioned,
    read_again,
    synced,
    versions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# of a table with columns that can be large, and so with a TOAST table, and of one without
REWRITING = (
    "VACUUM FULL {t}",
    "UPDATE {t} SET a = 7 WHERE id = 2",
    "CLUSTER {t} USING {t}_pkey",
    "UPDATE {t} SET a = 8 WHERE id = 3",
)
# each is done between two syncs, with rows before, between and after
HARMLESS = {
    "longer": Altered(
        "a varchar(10)",
        "'old'",
        (
            "UPDATE {t} SET a = repeat('a', 10) WHERE id = 2",
            "ALTER TABLE {t} ALTER a TYPE varchar(20)",
            "UPDATE {t} SET a = repeat('b', 20) WHERE id = 3",
            "ALTER TABLE {t} ALTER a TYPE text",
            "UPDATE {t} SET a = repeat('c', 30) WHERE id = 5",
        ),
    ),
    "labelled": Altered(
        "a mood, b mood[]",
        "'good', '{{bad,good}}'",
        (
            "UPDATE {t} SET a = 'bad' WHERE id = 2",
            "ALTER TYPE mood ADD VALUE 'so-so' BEFORE 'bad'",
            "UPDATE {t} SET a = 'so-so', b = '{{so-so}}' WHERE id IN (2, 3)",
        ),
    ),
    "partition_made": partitioned(
        "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (20)",
        "INSERT INTO {t} SELECT g, 'more' FROM generate_series(10, 19) g",
        "UPDATE {t} SET id = 7 WHERE id = 10",
        "CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (id)",
        "CREATE TABLE {t}_31 PARTITION OF {t}_3 FOR VALUES FROM (20) TO (30)",
        "INSERT INTO {t} VALUES (20, 'deeper')",
    ),
    "rewritten": Altered("a int, b text", "g, 'old'", REWRITING),
    "rewritten_narrow": Altered("a int", "g", REWRITING),
    "partition_rewritten": partitioned(
        "VACUUM FULL {t}_1",
        "UPDATE {t} SET t = 'between' WHERE id = 2",
        "CLUSTER {t}_1 USING {t}_1_pkey",
        "UPDATE {t} SET t = 'after' WHERE id = 3",
    ),
    "truncated": Altered(
        "a text",
        "'old'",
        ("UPDATE {t} SET a = 'lost'", "TRUNCATE {t}", "INSERT INTO {t} SELECT g, 'new' FROM generate_series(1, 3) g"),
    ),
    "partitions_truncated": partitioned(
        "UPDATE {t} SET t = 'lost'", "TRUNCATE {t}", "INSERT INTO {t} VALUES (1, 'new'), (2, 'new')"
    ),
    "settings": Altered(
        "a text, b int",
        "'old', g",
        (
            "CREATE INDEX {t}_a ON {t} (a)",
            "CREATE UNIQUE INDEX CONCURRENTLY {t}_b ON {t} (b)",
            "REINDEX TABLE {t}",
            "DROP INDEX {t}_a, {t}_b",
            "UPDATE {t} SET a = 'indexed' WHERE id = 2",
            "ALTER TABLE {t} ADD CONSTRAINT {t}_positive CHECK (id > 0), ADD UNIQUE (b)",
            "ALTER TABLE {t} ALTER b SET NOT NULL",
            "ALTER TABLE {t} DROP CONSTRAINT {t}_positive",
            "ALTER TABLE {t} ALTER a SET DEFAULT 'later'",
            "INSERT INTO {t} (id, b) VALUES (6, 6)",
            "ALTER TABLE {t} ALTER a DROP DEFAULT",
            "INSERT INTO {t} (id, b) VALUES (7, 7)",
            "COMMENT ON TABLE {t} IS 'x'",
            "COMMENT ON COLUMN {t}.a IS 'x'",
            "GRANT SELECT, UPDATE (a) ON {t} TO PUBLIC",
            "ALTER TABLE {t} ALTER a SET STATISTICS 100",
            "CREATE STATISTICS {t}_together ON a, b FROM {t}",
            "ANALYZE {t}",
            "ALTER TABLE {t} SET (fillfactor = 80), ALTER a SET STORAGE EXTERNAL",
            "UPDATE {t} SET a = repeat('stored otherwise ', 999) WHERE id = 3",
        ),
    ),
    "partition_settings": partitioned(
        "CREATE INDEX ON {t} (t)",
        "ALTER TABLE {t} ADD CHECK (id >= 0), ALTER t SET DEFAULT 'later'",
        "INSERT INTO {t} (id) VALUES (6)",
        "GRANT SELECT ON {t}, {t}_1 TO PUBLIC",
        "ALTER TABLE {t}_1 SET (fillfactor = 80)",
    ),
}
# once more, with no row around them
BY_ITSELF = (
    "VACUUM FULL rewritten",
    "VACUUM FULL rewritten_narrow",
    "CLUSTER partition_rewritten_1 USING partition_rewritten_1_pkey",
    "ALTER TYPE mood ADD VALUE 'worse'",
    "CREATE TABLE partition_made_4 PARTITION OF partition_made FOR VALUES FROM (40) TO (50)",
    "CREATE INDEX ON settings (b)",
    "ALTER TABLE settings ALTER b DROP NOT NULL, ALTER b SET DEFAULT 8",
    "COMMENT ON TABLE settings IS 'y'",
    "REVOKE ALL ON settings FROM PUBLIC",
    "ANALYZE",
)


def test_ddl_that_leaves_the_rows_alone_is_not_seen_in_the_lake(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path
) -> None:
    """On one server: tests/postgres/test_fingerprints.py has the same on all of them."""
    names = in_public((*HARMLESS, "idle"))
    with fresh_database(postgres_15) as database:
        database.execute("CREATE TYPE mood AS ENUM ('good', 'bad')", *making(HARMLESS))
        database.execute("CREATE TABLE idle (id int PRIMARY KEY)", "INSERT INTO idle VALUES (1)")
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names))
        synced(spark, pipeline)
        first = versions(pipeline, *names)
        database.execute(*altering(HARMLESS, database.name))
        report = synced(spark, pipeline)
        assert read_again(report) == {}
        assert [applied.name for applied in report.tables if applied.columns] == []
        assert_equal(spark, pipeline, *names)
        second = versions(pipeline, *names)
        # that of its rows; and one of metadata for comments and a column's type
        commits = {name: 2 if name in ("settings", "longer") else 1 for name in HARMLESS}
        assert second == {name: version + commits.get(name, 0) for name, version in first.items()}
        database.execute(*BY_ITSELF)
        assert read_again(synced(spark, pipeline)) == {}
        assert versions(pipeline, *names) == second | {"settings": second["settings"] + 1}
        assert_equal(spark, pipeline, *names)
