"""One source table in several modes at once: each of the lake's tables against an audit log that triggers keep in the
source. All is written without a JVM; ``tests/spark/test_several_modes_by_spark.py`` has what needs one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline, PluginName, Table, TablePatterns
from spark_jobs.errors import CdcError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.options.table_mask import TableMask
from spark_jobs.options.table_mode import Mode, holds_changes
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import pipeline_status
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.apply.several_modes import in_modes
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, LargeTable, created
from tests.spark.audit import AUDIT, Row, audit_of, audited
from tests.spark.audited_item import CHANGES, EMPTIED, ITEM, Transaction, first_rows
from tests.spark.mode_oracle import Oracle, lake_rows, xids_by_lsn

pytestmark = pytest.mark.postgres


@dataclass(frozen=True)
class Item:
    database: Database
    pipeline: Pipeline

    def run(self, transactions: Sequence[Transaction]) -> None:
        for statements in transactions:
            with self.database.connect() as connection, connection.transaction():
                for statement in statements:
                    connection.execute(statement)

    def in_modes(self, *modes: Mode) -> Pipeline:
        return replace(self.pipeline, tables=in_modes(ITEM, *modes))

    def assert_as_audited(self, table: Table) -> None:
        """As if it had been followed since the first snapshot."""
        oracle = Oracle(first_rows(), audit_of(self.database, "item"), xids_by_lsn(self.pipeline))
        rows = lake_rows(None, self.pipeline, table.name.relname, table.mode)  # type: ignore[arg-type]
        oracle.assert_agrees(table.mode, rows)


@pytest.fixture
def item(database: Database, tmp_path: Path, plugin: PluginName) -> Item:
    database.execute(
        *AUDIT,
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, n int)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g",
        *audited("item"),
    )
    return Item(database, pipeline_of(database, tmp_path / "lake", "public.item", plugin=plugin))


@pytest.fixture
def plugin() -> PluginName:
    return "pgoutput"


def rows_of(pipeline: Pipeline, relname: str) -> list[Row]:
    return list(rows_of_table(DeltaTable(pipeline.lake.table(QualifiedName("public", relname)))).to_pylist())


def verdicts(pipeline: Pipeline) -> dict[str, str]:
    return {str(table.name): table.verdict for table in verify(pipeline, no_spark).tables}


def stopped(report: SyncReport) -> dict[str, CdcError]:
    found = {str(table.name): table.error for table in report.stopped}
    found |= {str(table.name): table.error for table in report.tables if table.error is not None}
    assert len(report.errors) == len(found)
    return found


@pytest.mark.parametrize(
    ("plugin", "modes"),
    [
        ("pgoutput", ("mirror", "history", "append")),
        ("test_decoding", ("soft_delete", "history")),
        at_night("pgoutput", ("history", "mirror", "soft_delete")),
        at_night("test_decoding", ("append", "mirror", "history")),
    ],
)
def test_each_table_is_as_if_it_were_alone(item: Item, modes: tuple[Mode, ...]) -> None:
    pipeline = item.in_modes(*modes)
    tables = pipeline.tables or ()
    taken = synced_without_spark(pipeline).snapshots
    assert [table.name for table in taken] == [table.name for table in tables]
    assert {table.lsn for table in taken} == {taken[0].lsn}, "one exported snapshot for all"
    for transactions in (CHANGES[:3], CHANGES[3:], EMPTIED):
        item.run(transactions)
        report = synced_without_spark(pipeline)
        assert [(done.name, done.outcome) for done in report.tables] == [(table.name, "applied") for table in tables]
        for table in tables:
            item.assert_as_audited(table)
    cut = latest_cut(pipeline.lake)
    assert cut is not None
    assert {table.name for table in cut.tables} == {table.name for table in tables}
    compared = [str(table.name) for table in tables if not holds_changes(table.mode)]
    assert verdicts(pipeline) == dict.fromkeys(compared, "equal")
    status = pipeline_status(pipeline)
    assert status.errors == ()
    assert [(table.name, table.mode, table.pending_changes) for table in status.tables] == [
        (table.name, table.mode, 0) for table in tables
    ]
    item.run([("UPDATE item SET v = 'on' WHERE id = 3",)])
    capture(pipeline)
    assert {table.pending_changes for table in pipeline_status(pipeline).tables} == {1}
    # idle tables are known by the cut alone
    assert [done.outcome for done in synced_without_spark(pipeline).tables] == ["applied"] * len(tables)


def test_columns_that_change(item: Item) -> None:
    pipeline = item.in_modes("mirror", "history")
    synced_without_spark(pipeline)
    item.run([["ALTER TABLE item ADD w int DEFAULT 5", "ALTER TABLE item RENAME v TO words"]])
    item.run([["UPDATE item SET w = 6, words = 'wide' WHERE id = 2", "DELETE FROM item WHERE id = 3"]])
    report = synced_without_spark(pipeline)
    assert report.snapshots == ()
    assert [len(done.columns) for done in report.tables] == [2, 2]
    assert verdicts(pipeline) == {"public.item": "equal", "public.item__history": "equal"}
    item.run([["ALTER TABLE item RENAME words TO v", "ALTER TABLE item DROP w"], *CHANGES[2:]])
    assert synced_without_spark(pipeline).snapshots == ()
    assert verdicts(pipeline) == {"public.item": "equal", "public.item__history": "equal"}
    ended = [row for row in rows_of(pipeline, "item__history") if row["_valid_to_lsn"] is not None]
    assert {row["v"] for row in ended if row["id"] == 2} == {"v2"}
    assert {3, 6, 7, 8, 9} <= {row["id"] for row in ended}


def test_a_table_that_is_created_again_with_its_columns_in_another_order(item: Item) -> None:
    """What is past keeps its values under their names: the attribute numbers are another table's."""
    pipeline = item.in_modes("soft_delete", "history", "append")
    synced_without_spark(pipeline)
    item.run(
        [
            [
                "CREATE TABLE again (doc text, v text, n int, id int PRIMARY KEY)",
                "INSERT INTO again SELECT doc, v, n, id FROM item WHERE id > 2",
                "DROP TABLE item",
                "ALTER TABLE again RENAME TO item",
            ]
        ]
    )
    assert len(synced_without_spark(pipeline).snapshots) == 3
    softly, history, changes = (rows_of(pipeline, name) for name in ("item", "item__history", "item__append"))
    assert {row["id"] for row in softly if row["_deleted_at"]} == {1, 2}
    assert {row["id"] for row in history if row["_valid_to"]} == {1, 2}
    assert len(history) == 20, "equal rows are the same versions"
    for row in (*softly, *history, *changes):
        assert (row["v"], row["n"]) == (f"v{row['id']}", row["id"] % 3)
        assert row["doc"].startswith("d")


def test_a_mode_is_added_and_removed(item: Item) -> None:
    """The table that is there is not touched. One that was removed stays as it is, and goes on when it is back."""
    alone, both = item.in_modes("mirror"), item.in_modes("mirror", "history")
    first, history = both.tables or ()
    synced_without_spark(alone)
    item.run(CHANGES[:2])
    (taken,) = synced_without_spark(both).snapshots
    assert taken.name == history.name
    item.run(CHANGES[2:])
    synced_without_spark(both)
    item.assert_as_audited(first)
    rows = rows_of(both, "item__history")
    assert min(row["_valid_from_lsn"] for row in rows) == int(taken.lsn)
    synced_without_spark(alone)
    item.run(EMPTIED)
    assert [done.name for done in synced_without_spark(alone).tables] == [ITEM]
    assert lake_rows(None, both, "item__history", "history") == rows  # type: ignore[arg-type]
    assert [table.name for table in pipeline_status(alone).tables] == [ITEM]
    report = synced_without_spark(both)
    assert (report.snapshots, [done.outcome for done in report.tables][1:]) == ((), ["applied"])
    assert verdicts(both) == {"public.item": "equal", "public.item__history": "equal"}


def test_one_is_stopped_alone(database: Database, tmp_path: Path) -> None:
    """A mode that keeps rows by their key has none here."""
    database.execute("CREATE TABLE item (v text)", "ALTER TABLE item REPLICA IDENTITY FULL")
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=in_modes(ITEM, "mirror", "history", "append"))
    database.execute("INSERT INTO item VALUES ('a'), ('a')")
    report = sync(pipeline, no_spark)
    assert list(stopped(report)) == ["public.item__history"]
    assert "public.item has no key, and mode history keeps rows by their key" in str(report.errors[0])
    database.execute("DELETE FROM item WHERE ctid = '(0,1)'")
    assert [done.outcome for done in sync(pipeline, no_spark).tables] == ["applied", "stopped", "applied"]


def test_a_source_table_of_that_name(item: Item) -> None:
    """It is not replicated, as nobody can tell which of the two is meant; all others go on, and nothing is lost."""
    patterns = TablePatterns(
        (TablePattern.parse("public.item*"),), (), lambda name: in_modes(name, "mirror", "history")
    )
    pipeline = replace(item.pipeline, tables=None, patterns=patterns)
    synced_without_spark(pipeline)
    item.run([("CREATE TABLE item__history (id int PRIMARY KEY)",), *CHANGES])
    report = sync(pipeline, no_spark)
    assert list(stopped(report)) == ["public.item__history"]
    assert "is a table of the source, and what public.item is called in mode history" in str(report.errors[0])
    assert [str(done.name) for done in report.tables] == ["public.item", "public.item__history"]
    excluded = replace(patterns, exclude=(TablePattern.parse("public.item__history"),))
    assert synced_without_spark(replace(pipeline, patterns=excluded)).snapshots == ()
    for table in in_modes(ITEM, "mirror", "history"):
        item.assert_as_audited(table)


def test_what_a_removed_mode_left_is_not_replaced(item: Item) -> None:
    both = item.in_modes("mirror", "history")
    synced_without_spark(both)
    item.database.execute("CREATE TABLE item__history (id int PRIMARY KEY)", "INSERT INTO item__history VALUES (1)")
    kept = rows_of(both, "item__history")
    for mode in ("history", "mirror"):
        other = Table(QualifiedName("public", "item__history"), mode)
        changed = replace(both, tables=(Table(ITEM), other))
        item.database.execute("UPDATE item SET n = n + 1", "UPDATE item__history SET id = id + 1")
        report = sync(changed, no_spark)
        assert list(stopped(report)) == ["public.item__history"]
        assert "holds public.item in mode history, and the configuration has public.item__history" in str(report.errors)
        assert [table.error is None for table in pipeline_status(changed).tables] == [True, False]
        assert [table.verdict for table in verify(changed, no_spark).tables] == ["equal", "not compared"]
    assert lake_rows(None, both, "item__history", "history") == kept  # type: ignore[arg-type]


def test_two_of_one_name_in_the_configuration(item: Item) -> None:
    both = in_modes(ITEM, "mirror", "history")
    with pytest.raises(CdcError, match=r"public\.item__history is a table of the source, and what public\.item"):
        replace(item.pipeline, tables=(*both, Table(both[1].name)))


def test_a_renamed_table(item: Item) -> None:
    """Both stop at its new name, and begin again under that one."""
    both = item.in_modes("mirror", "history")
    synced_without_spark(both)
    item.run([["ALTER TABLE item RENAME TO thing"], ["UPDATE thing SET n = 7"]])
    assert set(stopped(sync(both, no_spark))) == {"public.item", "public.item__history"}
    thing = replace(both, tables=in_modes(QualifiedName("public", "thing"), "mirror", "history"))
    assert len(synced_without_spark(thing).snapshots) == 2
    item.run([["UPDATE thing SET n = 8 WHERE id < 5"]])
    assert len(synced_without_spark(thing).tables) == 2
    assert verdicts(thing) == {"public.thing": "equal", "public.thing__history": "equal"}


@pytest.mark.nightly
def test_a_large_table_in_two_modes(database: Database, tmp_path: Path) -> None:
    """The chunks of both are read in turns, each into a folder of its own."""
    made = LargeTable.at(created(database), tmp_path / "lake").prepared()
    first, second = in_modes(BIG, "mirror", "mirror")
    second = replace(second, name=QualifiedName("public", "big__again"))
    large = replace(made, pipeline=replace(made.pipeline, tables=(first, second)))
    for name in (first.name, second.name):
        large.read_on(name=name)
    database.execute("UPDATE big SET id = id + 100000 WHERE id % 7 = 0", "DELETE FROM big WHERE id % 11 = 0")
    for name in (second.name, first.name):
        assert large.read_on(name=name, to_the_end=True).error is None
    database.execute("UPDATE big SET n = -n WHERE id % 5 = 0")
    synced_without_spark(large.pipeline)
    large.assert_equal()
    of_both = [sorted(map(repr, rows_of(large.pipeline, name))) for name in ("big", "big__again")]
    assert of_both[0] == of_both[1]


def test_masked_columns_and_a_table_of_that_name(item: Item) -> None:
    """Whatever the tables of the lake are called, those of the source are what is masked; another is let through."""
    hashed = TableMask(("v",), b"a salt of some length").hashed(b"canary").decode()
    masked = tuple(replace(table, mask=("v",)) for table in in_modes(ITEM, "mirror", "history"))
    pipeline = replace(item.pipeline, tables=masked, mask_salt=SecretStr("a salt of some length"))
    item.run([["UPDATE item SET v = 'canary'", "CREATE TABLE item__history (v text)"]])
    item.run([[f"CREATE PUBLICATION {item.database.name} FOR ALL TABLES"]])
    synced_without_spark(pipeline)
    item.run([["UPDATE item SET n = 7, v = 'canary' WHERE id = 1", "INSERT INTO item VALUES (21, 'canary')"]])
    item.run([["INSERT INTO item__history VALUES ('not masked')"]])
    synced_without_spark(pipeline)
    for relname, rows in (("item", 21), ("item__history", 22)):
        assert [row["v"] for row in rows_of(pipeline, relname)] == [hashed] * rows
    assert verdicts(pipeline) == {"public.item": "equal", "public.item__history": "equal"}
    written = Path(pipeline.lake.path).rglob("*")
    assert not [file for file in written if file.is_file() and b"canary" in file.read_bytes()]
