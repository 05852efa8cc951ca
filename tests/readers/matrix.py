"""Which readers read which kind of table. ``python -m tests.readers.matrix`` writes docs/readers.md anew, on a real
server and a real Spark; ``make readers`` makes the environment of the other readers first."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline, SparkOptions, Table
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.table_mode import Mode
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database, fresh_database, started
from tests.fixtures.spark import JARS
from tests.readers.read import READERS, printed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "readers.md"
ENVIRONMENT = ROOT / ".cache" / "readers"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")

PLAIN = "id int PRIMARY KEY, name text, day date, moment timestamptz, price numeric(10,2), big bigint DEFAULT 2^40"
WIDE = (
    "id int PRIMARY KEY, flag boolean, small smallint, single real, precise double precision, exact numeric(38,10),"
    " bytes bytea, uuid uuid, doc jsonb, span interval"
)
ROWS = "(1, 'é😀', '2024-02-29', '2024-02-29 12:30:00.000001+02', 1.50), (2, NULL, NULL, NULL, NULL)"


@dataclass(frozen=True)
class Kind:
    """A kind of table, as a reader of the page knows it: ``made`` and followed by ``then``, with its ``features``."""

    words: str
    features: frozenset[str] = frozenset()
    columns: str = PLAIN
    rows: str = f"INSERT INTO {{t}} (id, name, day, moment, price) VALUES {ROWS}"
    then: tuple[str, ...] = ("UPDATE {t} SET id = 3 WHERE id = 2",)
    mode: Mode = "mirror"
    types: tuple[tuple[str, str], ...] = ()
    limits: WriteLimits = field(default_factory=WriteLimits)


KINDS: Mapping[str, Kind] = {
    "plain": Kind("plain: numbers, text, dates, instants, decimals"),
    "wide": Kind(
        "wide types: booleans, floats, decimal(38,10), bytes, UUID, JSON and interval as text",
        columns=WIDE,
        rows=(
            "INSERT INTO {t} VALUES (1, true, -3, 1.5, 0.1, 1234567890123456789012345678.0123456789, '\\x00ff',"
            " '00000000-0000-0000-0000-0000000000aa', '{{\"a\": [1, null]}}', '1 day'),"
            " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        ),
    ),
    "appended": Kind("mode `append`", mode="append"),
    "kept": Kind("mode `history`", mode="history"),
    "marked": Kind("mode `soft_delete`", mode="soft_delete", then=("DELETE FROM {t} WHERE id = 2",)),
    "local": Kind(
        "with a `timestamp` (without a time zone)",
        frozenset({"timestampNtz"}),
        columns=f"{PLAIN}, local timestamp DEFAULT '1999-12-31 23:59:59.999999'",
    ),
    "renamed": Kind(
        "with a column that was renamed or dropped",
        frozenset({"columnMapping", "timestampNtz"}),
        then=("ALTER TABLE {t} RENAME name TO label", "ALTER TABLE {t} DROP price", "DELETE FROM {t} WHERE id = 2"),
    ),
    "odd": Kind(
        "with a column whose name has spaces or `,;{}()=`",
        frozenset({"columnMapping", "timestampNtz"}),
        columns=f'{PLAIN}, "odd, name" int DEFAULT 4',
    ),
    "large": Kind(
        "changed by Spark's MERGE when it was larger than 8 MiB",
        frozenset({"deletionVectors"}),
        limits=WriteLimits(whole_files_bytes=-1, small_bytes=0),
        then=("UPDATE {t} SET name = 'new' WHERE id = 2",),
    ),
    "arrays": Kind(
        "with an array (`types: array`)",
        columns=f"{PLAIN}, tags text[] DEFAULT '{{a,NULL,b}}'",
        types=(("tags", "array"),),
    ),
    "variant": Kind(
        "with a VARIANT (`types: variant`)",
        frozenset({"variantType"}),
        columns=f"{PLAIN}, doc jsonb DEFAULT '{{\"a\": 1}}'",
        types=(("doc", "variant"),),
    ),
}
NAMES = {
    "polars": "Polars, `read_delta`",
    "pandas": "deltalake, `to_pandas`",
    "pyarrow": "deltalake, `to_pyarrow_table`",
    "query_builder": "deltalake, `QueryBuilder`",
    "datafusion": "DataFusion",
    "daft": "Daft, `read_deltalake`",
    "duckdb": "DuckDB, `delta_scan`",
    "chdb": "chDB, `deltaLakeLocal`",
}


@dataclass(frozen=True)
class Answer:
    """``rows`` None: the reader refuses, and says so in ``refused``."""

    rows: tuple[str, ...] | None
    refused: str = ""

    def against(self, expected: tuple[str, ...], types: Mapping[str, str]) -> str:
        """``types``: those of the columns, as Spark prints them."""
        if self.rows is None:
            return "refuses"
        variants = {name for name, sql in types.items() if sql == "variant"}
        arrays = {name for name, sql in types.items() if sql.startswith("array")}
        if self.rows == expected:
            return "✓"
        if variants and _each(self.rows, dict.fromkeys(variants)) == _each(expected, dict.fromkeys(variants)):
            return "as bytes"
        if arrays and [*map(json.loads, self.rows)] == _each(expected, {}, {name: [] for name in arrays}):
            return "null arrays as `[]`"
        return "WRONG"


def _each(
    rows: Iterable[str], others: Mapping[str, object], where_null: Mapping[str, object] | None = None
) -> list[dict[str, object]]:
    """The rows with ``others`` in place of their own values, or ``where_null`` in place of nulls."""
    read = [json.loads(row) for row in rows]
    nulls = where_null or {}
    return [
        row | others | {name: value for name, value in nulls.items() if name in row and row[name] is None}
        for row in read
    ]


def answers(spark: SparkSession, database: Database, folder: Path) -> dict[str, dict[str, str]]:
    """By kind and reader: ✓, ``refuses``, or WRONG if its rows differ from those that Spark reads."""
    results = {}
    for name, kind in KINDS.items():
        path = _followed(spark, database, folder, name, kind)
        assert features_of(path) == kind.features, name
        rows = spark.read.format("delta").load(path)
        types = dict(rows.dtypes)
        rows = rows.withColumns({name: rows[name].cast("string") for name, sql in types.items() if sql == "variant"})
        expected = tuple(printed([row.asDict(recursive=True) for row in rows.collect()]))
        with ThreadPoolExecutor(2) as pool:
            replies = dict(zip(READERS, pool.map(lambda reader, at=path: _asked(reader, at), READERS), strict=True))
        results[name] = {reader: answer.against(expected, types) for reader, answer in replies.items()}
    return results


def features_of(path: str) -> frozenset[str]:
    """Those beyond what every table has."""
    return frozenset(DeltaTable(path).protocol().writer_features or ()) - {"appendOnly", "invariants"}


def _followed(spark: SparkSession, database: Database, folder: Path, name: str, kind: Kind) -> str:
    database.execute(f"CREATE TABLE {name} ({kind.columns})", kind.rows.format(t=name))
    pipeline = _pipeline(database, folder, name, kind)
    for statements in ((), kind.then):
        database.execute(*(statement.format(t=name) for statement in statements))
        report = sync(pipeline, lambda: spark)
        assert report.errors == (), report.errors
    return pipeline.lake.table(QualifiedName("public", name))


def _pipeline(database: Database, folder: Path, name: str, kind: Kind) -> Pipeline:
    made = pipeline_of(database, folder / name, f"public.{name}", slot=f"{database.name}_{name}", publication=name)
    types = ChosenTypes.of({column: ChosenType.parse(word) for column, word in kind.types})
    table = Table(QualifiedName("public", name), kind.mode, options=ColumnOptions(types=types))
    return replace(made, tables=(table,), writes=kind.limits)


def _asked(reader: str, table: str) -> Answer:
    command = [str(ENVIRONMENT / "bin" / "python"), str(Path(__file__).with_name("read.py")), reader, table]
    output = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    answer = json.loads(output.splitlines()[-1])
    rows = answer.get("rows")
    return Answer(None if rows is None else tuple(rows), answer.get("refused", ""))


def versions() -> dict[str, str]:
    """The pinned version of each package."""
    return dict(re.findall(r"^([a-z-]+)==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE))


def table_of(results: Mapping[str, Mapping[str, str]]) -> str:
    """The page's table."""
    package = dict.fromkeys(("pandas", "pyarrow", "query_builder"), "deltalake")
    heads = [
        f"{words.replace(',', f' {versions()[package.get(reader, reader)]},', 1)}" for reader, words in NAMES.items()
    ]
    heads = [head if "," in head else f"{head} {versions()[head.lower()]}" for head in heads]
    lines = ["| table | needs | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    for name, kind in KINDS.items():
        needs = ", ".join(f"`{feature}`" for feature in sorted(kind.features)) or "nothing"
        lines.append(f"| {kind.words} | {needs} | " + " | ".join(results[name][reader] for reader in NAMES) + " |")
    return "\n".join(lines)


def page_with(table: str) -> str:
    """The page with this table in place of its own."""
    return re.sub(r"(?ms)^\| table \|.*?\n(?=\n)", lambda _: table + "\n", PAGE.read_text())


def main() -> None:
    spark = spark_session(SparkOptions(master="local[2]", jars=str(JARS)))
    with started(18) as server, fresh_database(server) as database, tempfile.TemporaryDirectory() as folder:
        results = answers(spark, database, Path(folder))
    PAGE.write_text(page_with(table_of(results)))
    sys.stdout.write(f"{table_of(results)}\n")
    spark.stop()


if __name__ == "__main__":
    main()
