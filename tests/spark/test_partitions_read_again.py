"""Partitions that come or go: their rows alone are read again in one commit, and all is equal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import SyncReport
from tests.at_night import at_night
from tests.fixtures.no_spark import synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import fresh_database
from tests.spark.altered_tables import synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@dataclass(frozen=True)
class Case:
    """A partitioned table and what happens to it between two syncs, the table's name for ``{t}``; ``rows``: how many
    of it are read again, None: the table is read whole."""

    create: tuple[str, ...]
    changes: tuple[str, ...]
    rows: int | None


BY_ID = (
    "CREATE TABLE {t} (id int PRIMARY KEY, t text, doc text) PARTITION BY RANGE (id)",
    "ALTER TABLE {t} ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES FROM (200) TO (MAXVALUE)",
    "INSERT INTO {t} SELECT g, 'row ' || g, repeat(md5(g::text), 100) FROM generate_series(0, 299) g",
)
ALONE = (
    "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)",
    "INSERT INTO {t}_new SELECT g, 'unseen', repeat(md5(g::text), 100) FROM generate_series(100, 109) g",
)
# keep their values stored out of line, where they move too
BESIDE = (
    "UPDATE {t} SET t = 'beside' WHERE id % 10 = 3",
    "DELETE FROM {t} WHERE id % 10 = 7",
    "UPDATE {t} SET id = id + 1000 WHERE id IN (12, 212)",
    "INSERT INTO {t} VALUES (17, 'again', 'x'), (900, 'new', 'x')",
)
DETACH = "ALTER TABLE {t} DETACH PARTITION {t}_2"
ATTACH = "ALTER TABLE {t} ATTACH PARTITION {t}_2 FOR VALUES FROM (100) TO (200)"

CASES: dict[str, Case] = {
    "detached": Case(BY_ID, (*BESIDE, DETACH, *(s.replace("900", "901").replace("17,", "27,") for s in BESIDE)), 0),
    "dropped": Case(
        BY_ID, ("UPDATE {t} SET t = 'x' WHERE id > 150", "DROP TABLE {t}_2", "DELETE FROM {t} WHERE id = 5"), 0
    ),
    "dropped_alone": Case(BY_ID, ("DROP TABLE {t}_2",), 0),
    "two_dropped": Case(BY_ID, ("DROP TABLE {t}_1, {t}_2", "UPDATE {t} SET t = 'x' WHERE id = 250"), 0),
    "moved_in_and_detached": Case(
        BY_ID,
        (
            "UPDATE {t} SET id = 5000 - id WHERE id < 3",
            "DELETE FROM {t} WHERE id = 150",
            "UPDATE {t} SET id = 150 WHERE id = 250",
            "DELETE FROM {t} WHERE id = 151",
            "UPDATE {t} SET id = 151 WHERE id = 251",
            DETACH,
        ),
        0,
    ),
    "attached": Case(
        (*BY_ID, "DROP TABLE {t}_2"),
        (
            *BESIDE,
            *ALONE,
            "ALTER TABLE {t} ATTACH PARTITION {t}_new FOR VALUES FROM (100) TO (200)",
            "UPDATE {t} SET t = 'seen' WHERE id = 104",
            "DELETE FROM {t} WHERE id = 105",
            "INSERT INTO {t} VALUES (150, 'seen', 'x')",
            "UPDATE {t} SET id = 151 WHERE id = 250",
            "UPDATE {t} SET id = 3251 WHERE id = 106",
        ),
        10,
    ),
    "attached_empty": Case(
        (*BY_ID, "DROP TABLE {t}_2"),
        (
            "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)",
            "ALTER TABLE {t} ATTACH PARTITION {t}_new FOR VALUES FROM (100) TO (200)",
        ),
        0,
    ),
    "returned": Case(
        BY_ID,
        (
            "UPDATE {t} SET t = 'before' WHERE id = 120",
            DETACH,
            "UPDATE {t}_2 SET t = 'unseen' WHERE id < 110",
            "DELETE FROM {t}_2 WHERE id > 190",
            "UPDATE {t}_2 SET id = 195 WHERE id = 119",
            ATTACH,
            "UPDATE {t} SET t = t || ', after' WHERE id IN (101, 120, 195)",
            "UPDATE {t} SET id = 230230 WHERE id = 102",
        ),
        90,
    ),
    "replaced": Case(
        BY_ID,
        (
            "INSERT INTO {t} VALUES (1000, 'x', 'x')",
            "UPDATE {t} SET t = 'lost' WHERE id = 130",
            "DROP TABLE {t}_2",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (100) TO (200)",
            "INSERT INTO {t} VALUES (130, 'another', 'x'), (131, 'another', 'y')",
            "UPDATE {t} SET id = 132 WHERE id = 131",
        ),
        2,
    ),
    "replaced_across": Case(
        BY_ID,
        (
            "DROP TABLE {t}_2",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (150) TO (200)",
            "INSERT INTO {t} VALUES (160, 'another', repeat('y', 9000))",
            "DROP TABLE {t}_1",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (50) TO (150)",
            "INSERT INTO {t} VALUES (60, 'another', repeat('z', 9000))",
            "UPDATE {t} SET id = 110 WHERE id = 60",
            "UPDATE {t} SET id = 261000 WHERE id = 160",
        ),
        1,
    ),
    "listed": Case(
        (
            "CREATE TABLE {t} (kind text, id int, t text, PRIMARY KEY (kind, id)) PARTITION BY LIST (kind)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES IN ('a', 'it''s')",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES IN ('b')",
            "INSERT INTO {t} SELECT k, g, 'x' FROM generate_series(1, 20) g, unnest('{{a,it''s,b}}'::text[]) k",
        ),
        (
            "UPDATE {t} SET kind = 'b', id = id + 100 WHERE id = 1 AND kind = 'a'",
            "ALTER TABLE {t} DETACH PARTITION {t}_1",
            "DELETE FROM {t}_1 WHERE id = 2",
            "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES IN ('a', 'it''s')",
            "UPDATE {t} SET t = 'after' WHERE id = 3",
        ),
        37,
    ),
    "by_day": Case(
        (
            (
                "CREATE TABLE {t} (at timestamptz, id uuid DEFAULT gen_random_uuid(), t text, PRIMARY KEY (at, id))"
                " PARTITION BY RANGE (at)"
            ),
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (MINVALUE) TO ('2024-03-01 02:00+02')",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM ('2024-03-01 00:00Z') TO ('2024-03-02 00:00:00.5Z')",
            "INSERT INTO {t} SELECT '2024-02-29 12:00Z'::timestamptz + g * interval '1 h' FROM generate_series(0,36) g",
        ),
        ("DROP TABLE {t}_1", "UPDATE {t} SET t = 'x'"),
        0,
    ),
    "by_two_columns": Case(
        (
            (
                "CREATE TABLE {t} (a smallint, b date, n timestamp, t text, PRIMARY KEY (a, b, n))"
                " PARTITION BY RANGE (a, b, n)"
            ),
            (
                "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (MINVALUE, MINVALUE, MINVALUE)"
                " TO (1, '2024-01-05', '2024-01-05 06:00')"
            ),
            (
                "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (1, '2024-01-05', '2024-01-05 06:00')"
                " TO (2, '2024-01-07', MAXVALUE)"
            ),
            (
                "CREATE TABLE {t}_3 PARTITION OF {t} FOR VALUES FROM (2, '2024-01-07', MAXVALUE)"
                " TO (MAXVALUE, MAXVALUE, MAXVALUE)"
            ),
            (
                "INSERT INTO {t} SELECT a, d, d + h * interval '6 hours', 'x' FROM generate_series(0, 3) a,"
                " generate_series('2024-01-04'::date, '2024-01-08', '1 day') d, generate_series(0, 2) h"
            ),
        ),
        (
            "ALTER TABLE {t} DETACH PARTITION {t}_2",
            "UPDATE {t}_2 SET t = 'unseen' WHERE a = 1",
            (
                "ALTER TABLE {t} ATTACH PARTITION {t}_2 FOR VALUES FROM (1, '2024-01-05', '2024-01-05 06:00')"
                " TO (2, '2024-01-07', MAXVALUE)"
            ),
            "UPDATE {t} SET t = 'after' WHERE a <> 1",
        ),
        11 + 12,
    ),
    "below": Case(
        (
            "CREATE TABLE {t} (id bigint, kind int, t text, PRIMARY KEY (id, kind)) PARTITION BY RANGE (id)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (-5000000000) TO (10) PARTITION BY LIST (kind)",
            "CREATE TABLE {t}_1a (kind int NOT NULL, t text, id bigint NOT NULL)",
            "ALTER TABLE {t}_1 ATTACH PARTITION {t}_1a FOR VALUES IN (1, 2)",
            "CREATE TABLE {t}_1b PARTITION OF {t}_1 FOR VALUES IN (-3)",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (20)",
            "INSERT INTO {t} SELECT g, k, 'x' FROM generate_series(0, 19) g, unnest(ARRAY[1, 2]) k",
            "INSERT INTO {t} VALUES (-4000000000, -3, 'x')",
        ),
        (
            "ALTER TABLE {t}_1 DETACH PARTITION {t}_1a",
            "UPDATE {t}_1a SET t = 'unseen' WHERE id < 5",
            "ALTER TABLE {t}_1 ATTACH PARTITION {t}_1a FOR VALUES IN (1, 2)",
            "UPDATE {t} SET t = 'after' WHERE kind = -3",
        ),
        20,
    ),
    "whole_tree": Case(
        (
            "CREATE TABLE {t} (id bigint, kind int, t text, PRIMARY KEY (id, kind)) PARTITION BY RANGE (id)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (10) PARTITION BY HASH (kind)",
            "CREATE TABLE {t}_1a PARTITION OF {t}_1 FOR VALUES WITH (modulus 2, remainder 0)",
            "CREATE TABLE {t}_1b PARTITION OF {t}_1 FOR VALUES WITH (modulus 2, remainder 1)",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (20)",
            "INSERT INTO {t} SELECT g, k, 'x' FROM generate_series(0, 19) g, unnest(ARRAY[1, 2]) k",
        ),
        (
            "ALTER TABLE {t} DETACH PARTITION {t}_1",
            "UPDATE {t}_1 SET t = 'unseen' WHERE id < 5",
            "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES FROM (0) TO (10)",
            "UPDATE {t} SET t = 'after' WHERE id = 7",
        ),
        20,
    ),
    "beside_default": Case(
        (*BY_ID, "CREATE TABLE {t}_d PARTITION OF {t} DEFAULT", "INSERT INTO {t} VALUES (-1, 'x', repeat('x', 9000))"),
        (
            "DROP TABLE {t}_2",
            "INSERT INTO {t} SELECT g, 'default', repeat('y', 9000) FROM generate_series(100, 104) g",
            "UPDATE {t} SET id = -2 WHERE id = 100",
            "UPDATE {t} SET id = 101000 WHERE id = 101",
            "UPDATE {t} SET id = 120 WHERE id = -1",
        ),
        4,
    ),
    "filtered": Case(
        BY_ID,
        ("UPDATE {t} SET t = 'x' WHERE id = 5", DETACH, "UPDATE {t}_2 SET t = 'unseen' WHERE id < 110", ATTACH),
        50,
    ),
    # in doubt, whole
    "hashed": Case(
        (
            "CREATE TABLE {t} (id int PRIMARY KEY, t text) PARTITION BY HASH (id)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES WITH (modulus 2, remainder 0)",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES WITH (modulus 2, remainder 1)",
            "INSERT INTO {t} SELECT g, 'x' FROM generate_series(1, 20) g",
        ),
        ("ALTER TABLE {t} DETACH PARTITION {t}_2",),
        None,
    ),
    "default_gone": Case(
        (*BY_ID, "CREATE TABLE {t}_d PARTITION OF {t} DEFAULT", "INSERT INTO {t} VALUES (-1, 'x', 'x')"),
        ("DROP TABLE {t}_d",),
        None,
    ),
    "expression": Case(
        (
            "CREATE TABLE {t} (id int NOT NULL, t text) PARTITION BY RANGE ((id % 10))",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (5)",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (5) TO (10)",
            "ALTER TABLE {t}_1 ADD PRIMARY KEY (id)",
            "ALTER TABLE {t}_2 ADD PRIMARY KEY (id)",
            "ALTER TABLE {t}_1 REPLICA IDENTITY FULL",
            "ALTER TABLE {t}_2 REPLICA IDENTITY FULL",
            "ALTER TABLE {t} REPLICA IDENTITY FULL",
            "INSERT INTO {t} SELECT g, 'x' FROM generate_series(1, 20) g",
        ),
        ("ALTER TABLE {t} DETACH PARTITION {t}_2",),
        None,
    ),
    "text_ranges": Case(
        (
            "CREATE TABLE {t} (id text PRIMARY KEY, t text) PARTITION BY RANGE (id)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM ('a') TO ('m')",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM ('m') TO ('z')",
            "INSERT INTO {t} VALUES ('a', 'x'), ('n', 'x')",
        ),
        ("ALTER TABLE {t} DETACH PARTITION {t}_2",),
        None,
    ),
    "other_collation": Case(
        (
            "CREATE TABLE {t} (id text COLLATE whatever_case PRIMARY KEY, t text) PARTITION BY LIST (id)",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES IN ('a')",
            "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES IN ('b')",
            "INSERT INTO {t} VALUES ('A', 'x'), ('B', 'x')",
        ),
        ("ALTER TABLE {t} DETACH PARTITION {t}_2",),
        None,
    ),
    "truncated_too": Case(BY_ID, (DETACH, "TRUNCATE {t}", "INSERT INTO {t} VALUES (5, 'x', 'x')"), None),
    "altered_too": Case(BY_ID, (DETACH, "ALTER TABLE {t} RENAME t TO u", "UPDATE {t} SET u = 'x' WHERE id = 5"), None),
    "leaf_truncated": Case(BY_ID, (DETACH, "TRUNCATE {t}_1"), None),
    "moved_bounds": Case(
        BY_ID,
        (
            DETACH,
            "DELETE FROM {t}_2 WHERE id > 150",
            "ALTER TABLE {t} ATTACH PARTITION {t}_2 FOR VALUES FROM (100) TO (160)",
        ),
        None,
    ),
}
# each kind of bounds, each way that rows cross them, and of the doubts those of the catalogue and of the log
BY_DAY = (
    *("moved_in_and_detached", "attached", "attached_empty", "returned", "replaced_across", "listed", "by_day"),
    *("by_two_columns", "below", "beside_default", "filtered", "hashed", "expression", "altered_too", "moved_bounds"),
)
FILTERED = "CREATE PUBLICATION {p} FOR TABLE {tables} WITH (publish_via_partition_root)"


def schema(cases: Mapping[str, Case]) -> Iterator[str]:
    yield "CREATE COLLATION whatever_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    for table, case in cases.items():
        yield from (statement.format(t=table) for statement in case.create)


def rows_read(report: SyncReport) -> dict[str, int]:
    return {table.name.relname: table.partitions.rows for table in report.tables if table.partitions is not None}


def commits(pipeline: Pipeline, name: QualifiedName) -> list[dict[str, Any]]:
    """What the table's numbered commits say of themselves, oldest first."""
    found = []
    for file in sorted(Path(pipeline.lake.table(name), "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if any("txn" in action for action in actions):
            info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
            found.append(json.loads(info["userMetadata"]))
    return found


def assert_equal(spark: SparkSession, pipeline: Pipeline, names: tuple[QualifiedName, ...]) -> None:
    assert [found for found in compare(spark, pipeline, names) if not found.equal] == []


@pytest.mark.parametrize(
    ("chosen", "limits"),
    [(BY_DAY, None), at_night(tuple(CASES), None), at_night(tuple(CASES), WriteLimits(in_memory_bytes=0))],
    ids=["by day", "all", "all by executors"],
)
def test_each_way_a_partition_comes_or_goes(
    spark: SparkSession,
    postgres_17: PostgresServer,
    tmp_path: Path,
    chosen: tuple[str, ...],
    limits: WriteLimits | None,
) -> None:
    """``limits`` None: without a JVM."""
    cases = {table: CASES[table] for table in chosen}
    names = tuple(QualifiedName("public", table) for table in cases)
    with fresh_database(postgres_17) as database:
        database.execute(*schema(cases))
        tables = ", ".join(f"{table}{' WHERE (id % 2 = 0)' * (table == 'filtered')}" for table in cases)
        database.execute(FILTERED.format(p=database.name, tables=tables))
        pipeline = pipeline_of(database, tmp_path / "lake", *map(str, names))
        pipeline = replace(pipeline, writes=limits or pipeline.writes)
        sync_once = synced_without_spark if limits is None else partial(synced, spark)
        sync_once(pipeline)
        assert_equal(spark, pipeline, names)
        before = {name: len(commits(pipeline, name)) for name in names}
        database.execute(*(change.format(t=table) for table, case in cases.items() for change in case.changes))
        report = sync_once(pipeline)
        assert_equal(spark, pipeline, names)
        assert rows_read(report) == {table: case.rows for table, case in cases.items() if case.rows is not None}
        whole = {table.name.relname for table in report.snapshots}
        assert whole == {table for table, case in cases.items() if case.rows is None}
        assert {name: len(commits(pipeline, name)) - before[name] for name in names} == dict.fromkeys(names, 1)
        assert_told(pipeline, report)
        # once per cause, and what follows is followed
        later = ("attached", "attached_empty", "returned", "below")
        database.execute(*(f"UPDATE {table} SET t = t || '!' WHERE true" for table in later))
        report = sync_once(pipeline)
        assert (rows_read(report), report.snapshots) == ({}, ())
        assert_equal(spark, pipeline, tuple(QualifiedName("public", table) for table in later))


def assert_told(pipeline: Pipeline, report: SyncReport) -> None:
    """In the output, the commit and the status alike."""
    name = QualifiedName("public", "returned")
    said = commits(pipeline, name)[-1]["partitions_read"]
    told = next(table.partitions for table in report.tables if table.name == name)
    assert told is not None
    assert said == {"reason": "partition public.returned_2 was attached", "rows": 90, "lsn": told.lsn}
    assert (told.reason, told.rows) == (said["reason"], 90)
    status = next(table for table in pipeline_status(pipeline).tables if table.name == name)
    assert status.partitions == told
