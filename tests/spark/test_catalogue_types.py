"""Columns of types that initdb made: their OIDs lie between the built-in ones and the users', and vary by cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import FIRST_VARYING_OID
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_TABLE = """
CREATE TABLE made_by_initdb (id information_schema.cardinal_number PRIMARY KEY, name information_schema.sql_identifier,
  yes information_schema.yes_or_no, at information_schema.time_stamp, words information_schema.character_data[],
  feature information_schema.sql_features)
"""
_ROWS = """
INSERT INTO made_by_initdb SELECT g, 'name ' || g, 'YES', '2024-01-01 00:00+00'::timestamptz + g * interval '1 h',
  ARRAY['a b', NULL]::information_schema.character_data[], f
FROM generate_series({}, {}) g, (SELECT f FROM information_schema.sql_features f LIMIT 1) one(f)
"""


@pytest.mark.parametrize("source", [{}, {"binary": True}, {"plugin": "test_decoding"}], ids=["text", "binary", "lines"])
def test_they_are_followed(spark: SparkSession, database: Database, tmp_path: Path, source: dict[str, Any]) -> None:
    database.execute(_TABLE, _ROWS.format(1, 20))
    oids = database.execute(
        "SELECT atttypid::int FROM pg_attribute WHERE attrelid = 'made_by_initdb'::regclass AND attnum > 0"
    )
    assert {FIRST_VARYING_OID <= int(str(oid)) < 16_384 for (oid,) in oids} == {True}
    pipeline = pipeline_of(database, tmp_path / "lake", "public.made_by_initdb", **source)
    followed = Followed(spark, database, pipeline, (QualifiedName("public", "made_by_initdb"),))
    assert sync(pipeline, lambda: spark).errors == ()
    _assert_equal(followed)
    database.execute(
        _ROWS.format(21, 40),
        "UPDATE made_by_initdb SET yes = 'NO', name = NULL WHERE id < 5",
        "DELETE FROM made_by_initdb WHERE id = 30",
        "UPDATE made_by_initdb SET id = 100 WHERE id = 31",
    )
    report = sync(pipeline, lambda: spark)
    assert (report.errors, [table.outcome for table in report.tables]) == ((), ["applied"])
    _assert_equal(followed)


def _assert_equal(followed: Followed) -> None:
    (name,) = followed.names
    lake, columns = followed.lake_rows(name)
    # domains are in the lake what their base types are there
    casts = {"id": "int", "at": "timestamptz"}
    selected = ", ".join(f"{column}::{casts.get(column, 'text')}" for column in columns)
    with followed.database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        assert sorted(lake, key=repr) == sorted(
            connection.execute(f"SELECT {selected} FROM {name}").fetchall(), key=repr
        )
