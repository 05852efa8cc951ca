"""What PostgreSQL changes without sending it: seen in the catalogue, read again by itself, and equal in the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.status import pipeline_status
from tests.at_night import at_night
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

REWRITTEN, RETYPED = "it was rewritten by DDL", "the type of column a was changed"
# between two syncs; each table has one kind of change, and every row of it counts
READ_AGAIN = {
    "using_same_type": Altered("a int", "g", ("ALTER TABLE {t} ALTER a TYPE int USING a + 1",), REWRITTEN),
    "blanks": Altered("a varchar(9)", "'x'", ("ALTER TABLE {t} ALTER a TYPE char(9)",), RETYPED),
    "digits": Altered(
        "a numeric(12,4)",
        "g + 0.1234",
        ("ALTER TABLE {t} ALTER a TYPE numeric(12,1)", "ALTER TABLE {t} ALTER a TYPE numeric(12,4)"),
        REWRITTEN,
    ),
    "more_digits": Altered(
        "a numeric(6,2)",
        "g + 0.12",
        (
            "ALTER TABLE {t} ALTER a TYPE numeric(12,2)",
            "UPDATE {t} SET a = 1234567890.12 WHERE id = 2",
            "ALTER TABLE {t} ALTER a TYPE numeric(14,4)",
            "UPDATE {t} SET a = 1234567890.1234 WHERE id = 3",
        ),
        RETYPED,
    ),
    "instants": Altered(
        "a timestamp(6)",
        "'2024-01-01 00:00:00.123456'",
        ("ALTER TABLE {t} ALTER a TYPE timestamp(0)", "ALTER TABLE {t} ALTER a TYPE timestamp(6)"),
        REWRITTEN,
    ),
    "documents": Altered(
        "a json",
        """'{{"b": 1,  "a": 2}}'::json""",
        ("ALTER TABLE {t} ALTER a TYPE jsonb", "ALTER TABLE {t} ALTER a TYPE json"),
        REWRITTEN,
    ),
    "widened": Altered(
        "a int",
        "g",
        ("ALTER TABLE {t} ALTER a TYPE bigint", "UPDATE {t} SET a = a + 10000000000 WHERE id < 3"),
        RETYPED,
    ),
    "defaulted_by_row": Altered(
        "a text",
        "'old'",
        (
            "ALTER TABLE {t} ADD b float DEFAULT random()",
            "UPDATE {t} SET b = 2 WHERE id = 2",
            "INSERT INTO {t} (id) VALUES (11)",
        ),
        "column b was added; it was rewritten by DDL",
    ),
    "expression_dropped": Altered(
        "a int, b int GENERATED ALWAYS AS (a * 2) STORED",
        "g",
        ("ALTER TABLE {t} ALTER b DROP EXPRESSION", "UPDATE {t} SET b = 7 WHERE id = 2"),
        "column b is no longer generated",
    ),
    "moods": Altered(
        "a mood",
        "'good'::mood",
        (
            "ALTER TYPE mood RENAME VALUE 'good' TO 'fine'",
            "UPDATE {t} SET a = 'fine' WHERE id = 2",
            "ALTER TYPE mood RENAME VALUE 'fine' TO 'good'",
        ),
        "a label of enum mood was renamed",
    ),
    "places": Altered(
        "a place",
        "ROW(g, g)::place",
        (
            "ALTER TYPE place ADD ATTRIBUTE z int",
            "UPDATE {t} SET a = ROW(1, 2, 3) WHERE id = 2",
            "ALTER TYPE place DROP ATTRIBUTE z",
        ),
        "attributes of type place were added or dropped",
    ),
    "key_changed": Altered(
        "a int NOT NULL",
        "g",
        (
            "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (id, a)",
            "UPDATE {t} SET a = a + 100 WHERE id < 3",
        ),
        "the replica identity of public.key_changed was changed",
    ),
    "key_made_again": Altered(
        "a int",
        "g",
        (
            "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
            "INSERT INTO {t} VALUES (2, 2)",
            "DELETE FROM {t} WHERE ctid = (SELECT max(ctid) FROM {t} WHERE id = 2)",
            "ALTER TABLE {t} ADD PRIMARY KEY (id)",
            "UPDATE {t} SET a = 9 WHERE id = 2",
        ),
        "the primary key of public.key_made_again was dropped for a time",
        made_with=("ALTER TABLE {t} REPLICA IDENTITY FULL",),
    ),
    "gone_for_a_time": Altered(
        "a text",
        "'old'",
        (
            "ALTER PUBLICATION {p} DROP TABLE {t}",
            "DELETE FROM {t} WHERE id < 3",
            "ALTER PUBLICATION {p} ADD TABLE {t}",
        ),
        "it was not published for a time",
    ),
    "created_again": Altered(
        "a text",
        "'old'",
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (id int PRIMARY KEY, a text)",
            "INSERT INTO {t} VALUES (1, 'new')",
            "ALTER PUBLICATION {p} ADD TABLE {t}",
        ),
        "another table has the name public.created_again now",
    ),
    "truncated": partitioned(
        "TRUNCATE {t}_1",
        "INSERT INTO {t} VALUES (3, 'after')",
        reason="partition public.truncated_1 was truncated on its own, or rewritten",
    ),
    "unlogged": partitioned(
        "ALTER TABLE {t}_1 SET UNLOGGED",
        "UPDATE {t}_1 SET t = 'unseen'",
        "ALTER TABLE {t}_1 SET LOGGED",
        reason="partition public.unlogged_1 was rewritten by DDL",
    ),
    "leaf_identity": partitioned(
        "ALTER TABLE {t}_1 REPLICA IDENTITY FULL", reason="the replica identity of public.leaf_identity_1 was changed"
    ),
    "partitions_widened": partitioned(
        "UPDATE {t} SET t = 'before' WHERE id < 3",
        "ALTER TABLE {t} ADD b text DEFAULT 'x'",
        "UPDATE {t} SET b = 'after' WHERE id = 2",
        "INSERT INTO {t} (id) VALUES (8)",
        reason="column b was added",
    ),
}
# of these no more than that, see test_partitions_read_again.py
PARTITIONS_READ = {
    "attached": partitioned(
        "CREATE TABLE {t}_2 (LIKE {t} INCLUDING ALL)",
        "INSERT INTO {t}_2 VALUES (15, 'before')",
        "ALTER TABLE {t} ATTACH PARTITION {t}_2 FOR VALUES FROM (10) TO (20)",
        reason="partition public.attached_2 was attached",
    ),
    "detached": partitioned(
        "ALTER TABLE {t} DETACH PARTITION {t}_1", reason="partition public.detached_1 was detached or dropped"
    ),
    "dropped": partitioned("DROP TABLE {t}_1", reason="partition public.dropped_1 was detached or dropped"),
    "returned": partitioned(
        "ALTER TABLE {t} DETACH PARTITION {t}_1",
        "UPDATE {t}_1 SET t = 'unseen'",
        "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (0) TO (10)",
        reason="partition public.returned_1 was attached",
    ),
}
WIDER = (
    "UPDATE {t} SET a = 9999.99 WHERE id = 2",
    "ALTER TABLE {t} ALTER a TYPE numeric(12,2)",
    "UPDATE {t} SET a = -1234567890.12 WHERE id = 3",
    "INSERT INTO {t} VALUES (8, 9999999999.99)",
)
WIDENED = ("a decimal(6,2) was widened to decimal(12,2)",)
# with what happens to other tables at the same time; more of them in test_schema_changes.py
IN_PLACE = {
    "numeric_widened": Altered("a numeric(6,2)", "g + 0.12", WIDER, followed=WIDENED),
    "numeric_key_widened": Altered(
        "a numeric(6,2)",
        "g + 0.12",
        WIDER,
        followed=WIDENED,
        made_with=("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (a, id)",),
    ),
    "numeric_of_whole_rows_widened": Altered(
        "a numeric(6,2)",
        "g + 0.12",
        WIDER,
        followed=WIDENED,
        made_with=("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", "ALTER TABLE {t} REPLICA IDENTITY FULL"),
    ),
    "numeric_of_partitions_widened": Altered("a numeric(6,2)", "g + 0.12", WIDER, followed=WIDENED, partitioned=True),
    "numeric_widened_and_renamed": Altered(
        "a numeric(6,2)",
        "g + 0.12",
        ("BEGIN", *WIDER, "ALTER TABLE {t} RENAME a TO b", "ALTER TABLE {t} ADD c int DEFAULT 7", "COMMIT"),
        followed=("a was renamed to b", "c int was added", "b decimal(6,2) was widened to decimal(12,2)"),
    ),
    "swapped": Altered(
        "a int, b int",
        "g, -g",
        ("ALTER TABLE {t} RENAME a TO x", "ALTER TABLE {t} RENAME b TO a", "ALTER TABLE {t} RENAME x TO b"),
        followed=("a was renamed to b", "b was renamed to a"),
    ),
    "added_again": Altered(
        "a text, b text",
        "'old', 'last'",
        ("ALTER TABLE {t} DROP a", "ALTER TABLE {t} ADD a text"),
        followed=("a was dropped", "a string was added"),
    ),
    "defaulted": Altered("a text", "'old'", ("ALTER TABLE {t} ADD b int DEFAULT 7",), followed=("b int was added",)),
    "partitions_renamed": partitioned(
        "UPDATE {t} SET t = 'before' WHERE id < 3",
        "ALTER TABLE {t} DROP a",
        "UPDATE {t} SET t = 'between' WHERE id IN (2, 3)",
        "ALTER TABLE {t} RENAME t TO name",
        "UPDATE {t} SET name = 'after' WHERE id = 3",
        "INSERT INTO {t} VALUES (8, 'after')",
        followed=("a was dropped", "t was renamed to name"),
        made_with=("ALTER TABLE {t} ADD a int DEFAULT 7",),
    ),
}
# no DDL: leaves whose identity is not that of their root are applied change by change
UNALTERED = {
    "mixed": partitioned(
        "UPDATE {t} SET id = id + 5 WHERE id < 3",
        "UPDATE {t} SET t = 'changed' WHERE id = 5",
        "DELETE FROM {t} WHERE id = 3",
        made_with=("ALTER TABLE ONLY {t} REPLICA IDENTITY FULL",),
    ),
    "moved_key": partitioned(
        "UPDATE {t} SET id = 8 WHERE id = 1",
        "UPDATE {t} SET t = 'other' WHERE id = 2",
        "DELETE FROM {t} WHERE id = 3",
        made_with=(
            "ALTER TABLE {t} ALTER t SET NOT NULL",
            "CREATE UNIQUE INDEX {t}_t ON {t} (id, t)",
            "ALTER TABLE ONLY {t} REPLICA IDENTITY USING INDEX {t}_t",
        ),
    ),
}
TABLES = {**READ_AGAIN, **PARTITIONS_READ, **IN_PLACE, **UNALTERED}
# one of each kind of reason, and of what is followed in place: behind the window's marker all of a kind are alike
BY_DAY = (
    *("more_digits", "defaulted_by_row", "moods", "key_made_again", "gone_for_a_time", "created_again", "truncated"),
    *("partitions_widened", "returned", "dropped"),
    *("numeric_key_widened", "numeric_widened_and_renamed", "swapped", "added_again", "partitions_renamed"),
    *UNALTERED,
)


def of_kind(kind: Mapping[str, Altered], chosen: Collection[str]) -> dict[str, Altered]:
    return {name: table for name, table in kind.items() if name in chosen}


@pytest.mark.parametrize("chosen", [BY_DAY, at_night(tuple(TABLES))], ids=["by day", "all"])
def test_every_kind_of_change_ends_equal_without_a_command(
    spark: SparkSession, postgres_15: PostgresServer, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    """On one server: tests/postgres/test_fingerprints.py sees each kind on all of them."""
    tables, again_read, partly_read, in_place = (
        of_kind(kind, chosen) for kind in (TABLES, READ_AGAIN, PARTITIONS_READ, IN_PLACE)
    )
    names = in_public((*tables, "idle"))
    with fresh_database(postgres_15) as database:
        database.execute("CREATE TYPE mood AS ENUM ('good', 'bad')", "CREATE TYPE place AS (x int, y int)")
        database.execute(*making(tables), "CREATE TABLE idle (id int PRIMARY KEY)", "INSERT INTO idle VALUES (1)")
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names))
        synced(spark, pipeline)
        first = versions(pipeline, *names)
        database.execute(*altering(tables, database.name))
        report = synced(spark, pipeline)
        again = read_again(report)
        assert set(again) == set(again_read)
        assert {name: why for name, why in again.items() if READ_AGAIN[name].reason not in why} == {}
        partly = {applied.name.relname: applied.partitions.reason for applied in report.tables if applied.partitions}
        assert partly == {name: table.reason for name, table in partly_read.items()}
        followed = {applied.name.relname: applied.columns for applied in report.tables if applied.columns}
        assert followed == {name: table.followed for name, table in in_place.items()}
        assert_equal(spark, pipeline, *names)
        second = versions(pipeline, *names)
        grown = {name: second[name] - first[name] for name in second}
        assert {name: grown[name] for name in (*UNALTERED, "idle")} == {"mixed": 1, "moved_key": 1, "idle": 0}
        # where a file was moved, a window's rows may be written before it is clear why
        assert {name for name in (*again_read, *partly_read) if grown[name] not in (1, 2)} == set()
        # once per cause
        database.execute("UPDATE swapped SET a = 5 WHERE id = 2", "UPDATE moved_key SET t = 'more' WHERE id = 2")
        assert read_again(synced(spark, pipeline)) == {}
        assert_equal(spark, pipeline, *names)
        third = versions(pipeline, *names)
        assert third == {**second, "swapped": second["swapped"] + 1, "moved_key": second["moved_key"] + 1}
        reasons = {table.name.relname: table.snapshot_reason for table in pipeline_status(pipeline).tables}
        assert {name for name, reason in reasons.items() if reason} == set(again_read)
