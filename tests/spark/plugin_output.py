"""A pipeline whose slot is read with any options of the output plugin, and what the plugin sends of the same WAL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import fresh_database
from tests.spark.followed_pipeline import Followed, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_assets.demo.embedded_postgres import PostgresServer


@contextmanager
def following(
    spark: SparkSession, server: PostgresServer, lake: Path, *tables: str, **source: Any
) -> Iterator[Followed]:
    """Tables ``many`` and ``few`` with a row each, followed by a slot that is read as ``source`` says."""
    with fresh_database(server) as database:
        database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
        for table in tables:
            database.execute(
                f"CREATE TABLE {table} (id int PRIMARY KEY, v text)", f"INSERT INTO {table} VALUES (0, 'a')"
            )
        pipeline = pipeline_of(database, lake, *(f"public.{table}" for table in tables), **source)
        followed = Followed(spark, database, pipeline, tuple(QualifiedName("public", table) for table in tables))
        synced(followed)
        yield followed


def sent(followed: Followed, *options: str) -> str:
    """The types of the messages that the server has for a reader with these options, one letter each, sorted."""
    names = ("publication_names", f'"{followed.database.name}"')
    with followed.database.connect() as connection:
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, 'look', true)", [followed.database.name])
        rows = connection.execute(
            "SELECT DISTINCT get_byte(data, 0)"
            " FROM pg_logical_slot_get_binary_changes('look', NULL, NULL, VARIADIC %s)",
            [[*options, *names]],
        ).fetchall()
    return "".join(sorted(chr(int(str(row[0]))) for row in rows))


def lines(followed: Followed, *options: str) -> list[str]:
    """The same of test_decoding."""
    with followed.database.connect() as connection:
        connection.execute("SELECT pg_copy_logical_replication_slot(%s, 'look', true)", [followed.database.name])
        rows = connection.execute(
            "SELECT data FROM pg_logical_slot_get_changes('look', NULL, NULL, VARIADIC %s)", [list(options)]
        ).fetchall()
    return [str(row[0]) for row in rows]


def messages_of(followed: Followed) -> list[str]:
    table = DeltaTable(followed.pipeline.lake.messages).to_pyarrow_table()
    ordered = table.sort_by([("commit_lsn_number", "ascending"), ("ordinal", "ascending")])
    return [content.decode() for content in ordered.column("content").to_pylist()]
