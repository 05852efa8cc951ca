"""A pipeline whose tables get names in a Hive metastore. A process of its own, as its session has the metastore.

``python -m tests.spark.registered CONFIGURATION DSN`` prints as JSON what each step shows by name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from cdc_assets import load_pipeline, sync
from spark_jobs.configuration import Pipeline
from spark_jobs.recover import recover
from spark_jobs.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "shop_public"


def shown(spark: SparkSession) -> dict[str, Any]:
    names = sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN {SCHEMA}").collect())
    return {
        name: [list(row) for row in spark.sql(f"SELECT * FROM {SCHEMA}.`{name}` ORDER BY 1").collect()]
        for name in names
    }


def followed(pipeline: Pipeline, dsn: str, spark: SparkSession) -> dict[str, Any]:
    def synced(*statements: str) -> dict[str, Any]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)
        report = sync(pipeline, lambda: spark)
        assert report.errors == (), report.errors
        return shown(spark)

    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    spark.sql(f"CREATE TABLE {SCHEMA}.taken USING DELTA AS SELECT 'somebody else''s' AS owner")
    stages = {"first": synced()}
    stages["renamed"] = synced("ALTER TABLE orders RENAME TO purchases", "INSERT INTO purchases VALUES (2, 'b')")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.source.slot])
        connection.execute("INSERT INTO purchases VALUES (3, 'c')")
    recovered = recover(pipeline, lambda: spark)
    assert recovered.errors == (), recovered.errors
    stages["recovered"] = synced("ALTER TABLE purchases ADD w int DEFAULT 7")
    return stages


def main(file: str, dsn: str) -> None:
    pipeline = load_pipeline(Path(file))
    spark = spark_session(pipeline.spark)
    sys.stdout.write(json.dumps(followed(pipeline, dsn, spark)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
