"""Partitions that come and go, followed through another kind of Spark, in a process of its own: see
``follow_elsewhere``."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot import table_read
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.spark.followed_pipeline import Followed

_SCHEMA = (
    "CREATE TABLE days (day date, id int, t text, doc text, PRIMARY KEY (day, id)) PARTITION BY RANGE (day)",
    "ALTER TABLE days ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
    "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    "INSERT INTO days SELECT '2024-01-01'::date + g, g, 'x', repeat(md5(g::text), 100) FROM generate_series(0, 50) g",
)
_CHANGES = (
    "UPDATE days SET t = 'y', id = id + 100 WHERE id % 7 = 0",  # keeps its document
    "ALTER TABLE days DETACH PARTITION days_2",
    "UPDATE days_2 SET t = 'unseen' WHERE id > 40",
    "DELETE FROM days_2 WHERE id = 45",
    "ALTER TABLE days ATTACH PARTITION days_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    "DELETE FROM days WHERE id % 5 = 0",
)


def main(options: str, database_file: str, lake: str) -> None:
    table_read._SMALL_BYTES = -1  # executors read every table
    kind = pickle.loads(Path(options).read_bytes())  # noqa: S301 - our own file
    spark = spark_session(kind)
    database = pickle.loads(Path(database_file).read_bytes())  # noqa: S301
    database.execute(*_SCHEMA)
    pipeline = replace(pipeline_of(database, Path(lake), "public.days", engine="spark"), spark=kind)
    followed = Followed(spark, database, pipeline, (QualifiedName("public", "days"),))
    for changes in ((), _CHANGES, ("DROP TABLE days_1",)):
        database.execute(*changes)
        report = sync(pipeline, lambda: spark)
        assert report.errors == (), report.errors
        assert bool(report.snapshots) is (not changes)
        followed.assert_equal()
    spark.stop()
    sys.stdout.write("lake equals source\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
