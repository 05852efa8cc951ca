"""A table whose mode changes: its transactions, its audit log, and what it must hold then."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from tests.fixtures.background import in_background
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.spark.audit import AUDIT, Row, audit_of, audited
from tests.spark.mode_oracle import Oracle, lake_rows, xids_by_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = QualifiedName("public", "item")
Transaction = Sequence[str]

# each kind of change, in transactions that do not overlap; ``doc`` is stored out of line
CHANGES: tuple[Transaction, ...] = (
    ("INSERT INTO item VALUES (100, 'new', repeat('x', 4000), 1)",),
    ("UPDATE item SET v = 'changed' WHERE id < 4", "UPDATE item SET n = 9 WHERE id = 5"),
    ("DELETE FROM item WHERE id IN (6, 7)",),
    ("UPDATE item SET id = 200 WHERE id = 8",),
    ("DELETE FROM item WHERE id = 9", "INSERT INTO item VALUES (9, 'again', NULL, NULL)"),
    ("INSERT INTO item VALUES (6, 'back', 'from the dead', 2)",),
    ("INSERT INTO item VALUES (300, 'short', 'life', 1)", "DELETE FROM item WHERE id = 300"),
)
EMPTIED: tuple[Transaction, ...] = (
    ("UPDATE item SET v = 'before' WHERE id IN (11, 12)",),
    ("TRUNCATE item", "INSERT INTO item SELECT g, 'after', repeat('z', 3000), 0 FROM generate_series(1, 30) g"),
    ("UPDATE item SET v = 'and on' WHERE id = 11", "UPDATE item SET id = 31 WHERE id = 12"),
)


@dataclass
class Item:
    """One audited table, and the pipeline that follows it."""

    spark: SparkSession
    database: Database
    pipeline: Pipeline
    reports: list[SyncReport] = field(default_factory=list)

    def run(self, transactions: Sequence[Transaction]) -> None:
        for statements in transactions:
            with self.database.connect() as connection, connection.transaction():
                for statement in statements:
                    connection.execute(statement)

    def in_mode(self, mode: Mode) -> Pipeline:
        return replace(self.pipeline, tables=(Table(ITEM, mode),))

    def sync(self, mode: Mode) -> SyncReport:
        report = sync(self.in_mode(mode), lambda: self.spark)
        assert report.errors == ()
        self.reports.append(report)
        return report

    @property
    def state(self) -> TableState:
        landed = LandedWindows.of(self.pipeline)
        state = table_state(self.pipeline.lake, ITEM, landed.identity)
        assert state is not None
        return state

    @property
    def path(self) -> str:
        return self.pipeline.lake.table(ITEM)

    def rows(self, mode: Mode) -> list[Row]:
        return lake_rows(self.spark, self.pipeline, "item", mode)

    def assert_as_audited(self, mode: Mode) -> None:
        """As if the table had been in this mode since its first snapshot."""
        oracle = Oracle(first_rows(), audit_of(self.database, "item"), xids_by_lsn(self.pipeline))
        oracle.assert_agrees(mode, self.rows(mode))

    def assert_current_rows(self, mode: Mode) -> None:
        """Those that the table shows as the source's are the source's; one by one, by two readers."""
        if mode == "mirror":
            (compared,) = compare(self.spark, self.pipeline, (ITEM,))
            assert compared.equal
        report = verify(self.in_mode(mode), lambda: self.spark)
        assert [table.verdict for table in report.tables] == ["equal"]

    def under_load(self) -> AbstractContextManager[None]:
        """A writer goes on while the context lasts."""
        return in_background(self._changes_without_end())

    def _changes_without_end(self) -> Generator[None]:
        for transaction in endless_changes(random.Random(5)):  # noqa: S311 - no secret
            self.run([transaction])
            yield


def first_rows() -> list[Row]:
    return [{"id": g, "v": f"v{g}", "doc": "d" * (3000 + g), "n": g % 3} for g in range(1, 21)]


def endless_changes(chosen: random.Random) -> Iterator[Transaction]:
    """Of rows that may be there or not; every fortieth transaction empties the table."""
    for number in range(1 << 30):
        old, other, new = chosen.randrange(1, 40), chosen.randrange(1, 40), 1000 + number
        put = f"VALUES ({old}, 'w{number}', repeat('w', {3000 + number % 50}), {number % 7})"
        insert = f"INSERT INTO item {put} ON CONFLICT (id) DO NOTHING"
        kinds: tuple[Transaction, ...] = (
            (insert,),
            (f"UPDATE item SET n = n + 1 WHERE id IN ({old}, {other})",),
            (f"UPDATE item SET doc = repeat('u', 3500), v = 'u{number}' WHERE id = {old}",),
            (f"DELETE FROM item WHERE id = {old}",),
            (f"UPDATE item SET id = {new} WHERE id = {old}",),
            (f"DELETE FROM item WHERE id = {old}", insert),
        )
        yield ("TRUNCATE item", insert) if number % 40 == 39 else chosen.choice(kinds)


def audited_item(spark: SparkSession, database: Database, lake: Path) -> Item:
    """Twenty rows; nothing is made yet of what follows them."""
    database.execute(
        *AUDIT,
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, n int)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g",
        *audited("item"),
    )
    return Item(spark, database, pipeline_of(database, lake, "public.item"))
