"""The tables as others read them: the same whichever Spark wrote them, and DuckDB opens them, which is neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import pytest

from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import SparkOptions
from tests.fixtures.servers import Database, fresh_database
from tests.fixtures.spark import for_few_rows
from tests.spark.follow_elsewhere import follow_elsewhere, follow_item
from tests.spark.scenarios import make_item

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# a column of each kind that ``item`` lacks
FURTHER = (
    "flag boolean DEFAULT true",
    "small smallint DEFAULT -3",
    "number int DEFAULT 70000",
    "single real DEFAULT 1.5",
    "precise double precision DEFAULT 0.1",
    "day date DEFAULT '2024-02-29'",
    "moment timestamptz DEFAULT '2024-02-29 12:30:00.000001+02'",
    "bytes bytea DEFAULT '\\x00ff'",
    "uuid uuid DEFAULT '00000000-0000-0000-0000-0000000000aa'",
    "doc_b jsonb DEFAULT '{\"a\": [1, null]}'",
    "\"with 'odd' name\" text[] DEFAULT '{a,b}'",
)


def make_wide_item(database: Database) -> None:
    make_item(database)
    database.execute(f"ALTER TABLE item {', '.join(f'ADD {column}' for column in FURTHER)}")


def schema_of(table: str) -> list[dict[str, Any]]:
    """The fields of the Delta schema, without the physical names that column mapping draws by lot."""
    actions = [
        json.loads(line)
        for commit in sorted(Path(table, "_delta_log").glob("*.json"))
        for line in commit.read_text().splitlines()
    ]
    newest = [action["metaData"]["schemaString"] for action in actions if "metaData" in action][-1]
    fields: list[dict[str, Any]] = json.loads(newest)["fields"]
    for field in fields:
        field["metadata"] = {k: v for k, v in field["metadata"].items() if not k.startswith("delta.columnMapping.")}
    return fields


def has_deletion_vectors(table: str) -> bool:
    commits = Path(table, "_delta_log").glob("*.json")
    return any('"deletionVector":{' in commit.read_text() for commit in commits)


def read_by_duckdb(table: str) -> list[tuple[Any, ...]]:
    (extension,) = Path(next(iter(duckdb_extension_delta.__path__))).glob(f"extensions/v{duckdb.__version__}/*")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        read = connection.execute("SELECT * FROM delta_scan(?)", [table]).to_arrow_table()
    return sorted(zip(*(column.to_pylist() for column in read.columns), strict=True))


def source_rows(database: Database) -> list[tuple[Any, ...]]:
    """Types that have no counterpart in the lake as text."""
    as_they_are = "id, name, price, at, doc, flag, small, number, single, precise, day, moment, bytes"
    as_text = "uuid::text, doc_b::text, \"with 'odd' name\"::text"
    return sorted(database.execute(f"SELECT {as_they_are}, {as_text} FROM item"))


@pytest.mark.nightly
@pytest.mark.usefixtures("read_by_executors")
def test_classic_and_connect_write_one_schema_and_duckdb_reads_it(
    server: PostgresServer, spark: SparkSession, jars_folder: Path, connect_server: str, tmp_path: Path
) -> None:
    schemas = {}
    for way in ("classic", "connect"):
        folder = tmp_path / way
        folder.mkdir()
        with fresh_database(server) as database:
            make_wide_item(database)
            if way == "classic":
                options = for_few_rows(jars_folder)
                table = follow_item(spark, options, database, folder / "lake")
            else:
                table = follow_elsewhere(SparkOptions(remote=connect_server), database, folder)
            assert has_deletion_vectors(table)
            assert read_by_duckdb(table) == source_rows(database), way
        schemas[way] = schema_of(table)
    assert schemas["connect"] == schemas["classic"]
    types = {field["name"]: field["type"] for field in schemas["classic"]}
    assert types["name"] == types["doc_b"] == types["with 'odd' name"] == "string"
