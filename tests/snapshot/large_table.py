"""A table that is read in many chunks while it changes in every way, and what the lake must hold afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spark_jobs.configuration import MergeEngine, Pipeline, SnapshotOptions, Table
from spark_jobs.errors import SnapshotGoesOnError
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.exporter import PATIENT, Exporter
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

BIG = QualifiedName("public", "big")
_BIG = Table(BIG)
ROWS = 4_000
# one chunk in each call, and no waiting for open transactions: none is exported
ONE_CHUNK = replace(PATIENT, seconds=0, reading=0)
CREATE = (
    # doc is never compressed and always out of line, so that an update leaves it out; pages are half empty, so that
    # updated rows move to wherever there is room
    "CREATE TABLE big (id bigint PRIMARY KEY, n int, filler text, doc text) WITH (fillfactor = 60)",
    "ALTER TABLE big ALTER doc SET STORAGE EXTERNAL, ALTER filler SET STORAGE PLAIN",
    f"""INSERT INTO big SELECT g, g, repeat(chr(65 + g % 26), 300),
      CASE WHEN g % 3 = 0 THEN repeat(md5(g::text), 80) END FROM generate_series(1, {ROWS}) g""",
)


def created(database: Database) -> Database:
    """With the table in it."""
    database.execute(*CREATE)
    return database


@dataclass
class LargeTable:
    database: Database
    pipeline: Pipeline
    spark: SparkProvider = no_spark

    @classmethod
    def at(
        cls,
        database: Database,
        lake: Path,
        *,
        spark: SparkProvider = no_spark,
        table: Table = _BIG,
        engine: MergeEngine = "auto",
    ) -> LargeTable:
        pipeline = pipeline_of(database, lake, engine=engine)
        options = SnapshotOptions(chunk_bytes=256 << 10, parallel=1)
        return cls(database, replace(pipeline, tables=(table,), snapshot=options), spark)

    def prepared(self) -> LargeTable:
        prepare(self.pipeline)
        return self

    def read_on(self, *, to_the_end: bool = False, name: QualifiedName = BIG) -> TableSnapshot:
        """Read one chunk, or all that are left, as a process of its own would. Raises SnapshotWaitsError if the table
        is read in one exported snapshot, for which a transaction has to end."""
        with Exporter(self.pipeline.source.dsn, PATIENT if to_the_end else ONE_CHUNK) as exporter:
            (outcome,) = snapshot(Run(self.pipeline, self.spark), [name], exporter=exporter)
        assert outcome.error is None or isinstance(outcome.error, SnapshotGoesOnError), outcome.error
        return outcome

    @property
    def folder(self) -> Path:
        return Path(self.pipeline.lake.staging(BIG), "chunks")

    @property
    def plan(self) -> dict[str, Any]:
        return dict(json.loads(max(self.folder.glob("plan-*.json")).read_text()))

    @property
    def attempt(self) -> int:
        return int(self.plan["attempt"]) if self.folder.exists() else 0

    @property
    def chunks_read(self) -> set[str]:
        return {file.name.rpartition("-")[0] for file in self.folder.glob("chunk-*.json")}

    @property
    def columns(self) -> list[str]:
        of_big = "attrelid = 'big'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        return [
            str(name) for (name,) in self.database.execute(f"SELECT attname::text FROM pg_attribute WHERE {of_big}")
        ]

    def rows(self) -> list[tuple[object, ...]]:
        return self.database.execute("SELECT * FROM big ORDER BY id")

    def lake_rows(self) -> list[tuple[object, ...]]:
        rows = rows_of_table(DeltaTable(self.pipeline.lake.table(BIG))).sort_by("id")
        of_commit = self.pipeline.table(BIG).metadata_columns
        assert rows.column_names == [*self.columns, *of_commit]
        rows = rows.select(self.columns)
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    def as_copied(self) -> pa.Table:
        """The rows as another tool has them: with another name of a column, in another order, and a column of its
        own."""
        rows = self.database.execute("SELECT id, doc, n, filler, 0 FROM big ORDER BY md5(id::text)")
        types = (pa.int64(), pa.large_string(), pa.int32(), pa.string(), pa.int64())
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
        return pa.table(columns, ["id", "doc", "n", "text", "_loaded"])

    def copy_to(self, path: Path) -> None:
        write_deltalake(str(path), self.as_copied(), mode="overwrite")

    def assert_equal(self) -> None:
        assert self.lake_rows() == self.rows()
        assert not self.folder.exists()


def changes(chance: random.Random, rows: int = ROWS) -> Sequence[str]:
    """One transaction's statements: of all kinds, on old rows and on those that transactions before have made."""

    def some() -> str:
        first = chance.randint(1, rows)
        return f"{first} AND {first + chance.choice((0, 3, 40))}"

    new, free = chance.randint(10**6, 10**9), chance.randint(10**6, 10**9)
    kinds = (
        f"UPDATE big SET n = n + 1 WHERE id BETWEEN {some()}",
        f"UPDATE big SET filler = repeat('u', 400) WHERE id BETWEEN {some()}",
        f"UPDATE big SET doc = repeat(md5(n::text), 90) WHERE id BETWEEN {some()}",
        f"DELETE FROM big WHERE id BETWEEN {some()}",
        f"INSERT INTO big VALUES ({new}, 0, repeat('i', 300), repeat(md5('{new}'), 80)) ON CONFLICT DO NOTHING",
        f"UPDATE big SET id = id + {free} WHERE id BETWEEN {some()}",
        f"WITH old AS (DELETE FROM big WHERE id BETWEEN {some()} RETURNING *)"  # noqa: ISC004
        " INSERT INTO big SELECT -id, n, filler, doc FROM old ON CONFLICT DO NOTHING",
        "WITH one AS (SELECT * FROM big ORDER BY id DESC LIMIT 3) UPDATE big SET n = -1 FROM one WHERE one.id = big.id",
        f"INSERT INTO big VALUES (-{free}, 0, 'short', 'life'); DELETE FROM big WHERE id = -{free}",
    )
    return [chance.choice(kinds) for _ in range(chance.randint(1, 4))]
