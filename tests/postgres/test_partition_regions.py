"""Which rows may differ by partitions that came or went: landed with the look that saw it, on every server version."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.prepare import prepare
from spark_jobs.schema.region_conditions import in_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

SCHEMA = (
    "CREATE TABLE parted (at timestamptz, kind text, id bigint, PRIMARY KEY (at, kind, id)) PARTITION BY RANGE (at)",
    (
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO ('2024-01-01 02:00+02')"
        " PARTITION BY LIST (kind)"
    ),
    # its columns have other numbers than the root's
    "CREATE TABLE parted_1a (id bigint NOT NULL, kind text NOT NULL, at timestamptz NOT NULL)",
    "ALTER TABLE parted_1 ATTACH PARTITION parted_1a FOR VALUES IN ('a', 'it''s')",
    "CREATE TABLE parted_1b PARTITION OF parted_1 DEFAULT",
    "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2024-01-01Z') TO ('2024-02-01 12:00:00.5Z')",
    "CREATE TABLE hashed (id int PRIMARY KEY) PARTITION BY HASH (id)",
    "CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (modulus 1, remainder 0)",
    "CREATE DOMAIN small AS int",
    "CREATE TABLE odd (id small PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE odd_1 PARTITION OF odd FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE backwards (id text PRIMARY KEY) PARTITION BY LIST (id text_pattern_ops)",
    "CREATE TABLE backwards_1 PARTITION OF backwards FOR VALUES IN ('a')",
)
TABLES = ("public.parted", "public.hashed", "public.odd", "public.backwards")
JANUARY = "TIMESTAMP_LTZ'2024-01-01 00:00:00.000000+00:00'"
SECOND = f"(c1 >= {JANUARY} AND c1 < TIMESTAMP_LTZ'2024-02-01 12:00:00.500000+00:00')"
BACK = "FOR VALUES FROM ('2024-01-01Z') TO ('2024-02-01 12:00:00.5Z')"
# what is done between two looks, one after the other, and the rows that may differ by it; empty: any
STEPS: tuple[tuple[str, str], ...] = (
    ("ALTER TABLE parted DETACH PARTITION parted_2", SECOND),
    (
        "ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM ('2024-01-01Z') TO ('2024-02-01 12:00:00.5Z')",
        SECOND,
    ),
    ("ALTER TABLE parted DETACH PARTITION parted_2 CONCURRENTLY", SECOND),
    ("ALTER TABLE parted_1 DETACH PARTITION parted_1a", f"(true AND c1 < {JANUARY} AND c2 IN ('a', 'it\\'s'))"),
    ("DROP TABLE parted_1b", ""),
    ("DROP TABLE parted_1", f"(true AND c1 < {JANUARY})"),
    ("DROP TABLE hashed_1", ""),
    ("DROP TABLE odd_1", ""),
    ("DROP TABLE backwards_1", ""),
)


def test_the_rows_that_a_partition_may_hold_are_landed(every_database: Database, tmp_path: Path) -> None:
    every_database.execute(*SCHEMA)
    pipeline = pipeline_of(every_database, tmp_path / "lake", *TABLES)
    prepare(pipeline)
    every_database.execute("INSERT INTO hashed VALUES (1)")
    _seen(pipeline)
    for statement, expected in STEPS:
        every_database.execute(statement)
        assert _seen(pipeline) == [expected], statement


def _seen(pipeline: Pipeline) -> list[str]:
    """Of each table that changed by the last windows, as read from the log: the condition on the root's columns, by
    number."""
    landed = capture(pipeline).landed
    markers = ChangeLog(pipeline.lake.change_log).markers(landed[0].ordinal - 1) if landed else ()
    return [
        in_spark(table.regions, lambda column: f"c{column.attnum}")
        for marker in markers
        for table in (marker.catalogue.changed if marker.catalogue is not None else ())
        if table.reasons
    ]
