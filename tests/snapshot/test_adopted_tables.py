"""Snapshots that adopt what another tool has loaded: the source is the oracle, whatever the copy holds."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pydantic import SecretStr

from spark_jobs.configuration import Adopted, Table
from spark_jobs.errors import LakeError, PreconditionError
from spark_jobs.snapshot import table_read
from spark_jobs.snapshot.chunks.adoption import Adoption
from spark_jobs.snapshot.chunks.read_record import ReadRecord
from spark_jobs.storage import Storage
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, ROWS, LargeTable, changes, created
from tests.spark.crash_here import Crash, crash

pytestmark = pytest.mark.postgres


@pytest.fixture
def large(database: Database, tmp_path: Path) -> LargeTable:
    """A table whose copy in ``theirs`` is equal."""
    large = LargeTable.at(created(database), tmp_path / "lake")
    large.copy_to(theirs(large))
    (table,) = large.pipeline.tables or ()
    adopting = replace(table, adopt=Adopted(str(theirs(large)), (("filler", "text"),)))
    large.pipeline = replace(large.pipeline, tables=(adopting,))
    return large.prepared()


def theirs(large: LargeTable) -> Path:
    return Path(large.pipeline.lake.path).with_name("theirs")


def forgotten(large: LargeTable) -> None:
    """As if another process read on."""
    lake = large.pipeline.lake
    large.pipeline = replace(large.pipeline, lake=replace(lake, storage=Storage()))


@pytest.fixture
def rows_sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows, not hashes, the source sends in each batch."""
    sent: list[int] = []
    fitted = table_read._fitted

    def counted(rows: pa.RecordBatch, *arguments: object) -> pa.RecordBatch:
        sent.append(rows.num_rows)
        return fitted(rows, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(table_read, "_fitted", counted)
    return sent


def test_of_an_equal_copy_no_row_is_read(large: LargeTable, rows_sent: list[int]) -> None:
    before = DeltaTable(str(theirs(large))).file_uris()
    assert large.read_on(to_the_end=True).rows == ROWS
    assert sum(rows_sent) == 0
    large.assert_equal()
    assert DeltaTable(str(theirs(large))).file_uris() == before
    large.database.execute("UPDATE big SET n = -n WHERE id % 7 = 0", "DELETE FROM big WHERE id % 11 = 0")
    synced_without_spark(large.pipeline)
    large.assert_equal()


def test_only_what_differs_is_read(large: LargeTable, rows_sent: list[int]) -> None:
    """Missing, extra, changed and doubled rows, while the source has gone on."""
    large.database.execute(
        "UPDATE big SET n = NULL WHERE id % 100 = 1",
        "INSERT INTO big SELECT -g, 0, 'new', NULL FROM generate_series(1, 50) g",
        "DELETE FROM big WHERE id % 100 = 2",
    )
    wrong = DeltaTable(str(theirs(large)))
    wrong.update({"text": "'-' || text"}, predicate="id % 500 = 3")
    wrong.delete("id % 500 = 4")
    write_deltalake(wrong, large.as_copied().slice(7, 9), mode="append")
    differ = ROWS // 100 + 50 + 2 * (ROWS // 500) + 9
    taken = large.read_on(to_the_end=True)
    assert sum(rows_sent) == differ
    large.assert_equal()
    assert taken.rows == len(large.rows())


@pytest.mark.parametrize("seed", [1, *(at_night(seed) for seed in range(2, 30))])
def test_changes_between_chunks(large: LargeTable, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311

    def change() -> None:
        for _ in range(chance.randint(0, 6)):
            with large.database.connect() as connection, connection.transaction():
                for statement in changes(chance):
                    connection.execute(statement)

    change()
    if chance.random() < 0.5:
        large.copy_to(theirs(large))
    change()
    while large.read_on().error is not None:
        change()
        if chance.random() < 0.2:
            forgotten(large)
    large.assert_equal()
    synced_without_spark(large.pipeline)
    large.assert_equal()


def test_killed_at_each_step(large: LargeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time the table has changed when another process reads on."""
    for place, (owner, name) in enumerate(STEPS):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, crash)
            with pytest.raises(Crash):
                large.read_on(to_the_end=True)
        large.database.execute(
            f"UPDATE big SET n = -n WHERE id % 9 = {place}",
            f"DELETE FROM big WHERE id % 200 = {place}",
            f"UPDATE big SET id = -id WHERE id % 200 = {100 + place}",
        )
        forgotten(large)
    large.read_on(to_the_end=True)
    large.assert_equal()


STEPS = ((ReadRecord, "adopt"), (ReadRecord, "add"), (Adoption, "write"), (Adoption, "forget"), (ReadRecord, "remove"))


def test_a_copy_that_is_written_meanwhile(large: LargeTable) -> None:
    """Its version is read on, and a newer one is begun with when that is gone."""
    large.read_on()
    large.database.execute("UPDATE big SET n = 0 WHERE id < 9")
    large.copy_to(theirs(large))
    large.read_on()
    assert large.plan["adopted"] == "0"
    gone = DeltaTable(str(theirs(large)))
    gone.vacuum(0, dry_run=False, enforce_retention_duration=False)
    forgotten(large)
    large.read_on(to_the_end=True)
    large.assert_equal()


def test_what_says_which_rows_are_adopted_is_gone(large: LargeTable) -> None:
    large.read_on()
    (large.folder / "adopted-000000").unlink()
    large.read_on(to_the_end=True)
    large.assert_equal()


OF_ALL_TYPES = (
    "CREATE DOMAIN small AS numeric(5, 2)",
    "CREATE TYPE pair AS (a int, b text)",
    """CREATE TABLE big (id bigint, part uuid, b bool, i2 smallint, i4 int, o oid, f4 real, f8 double precision,
      n numeric(38, 10), n0 numeric(9, 0), s small, free numeric, d date, ts timestamp, tz timestamptz, t text,
      v varchar(20), c char(5), bin bytea, j jsonb, iv interval, arr int[], p pair, net inet, "odd ""name" text,
      PRIMARY KEY (id, part))""",
    """INSERT INTO big SELECT g, md5(g::text)::uuid, g % 2 = 0, g % 3, -g, g, g / 7.0, -g / 7.0, g / 1000000000.0,
      -g, g / 3.0, g / 11.0, '2000-01-01'::date + g, '1999-12-31 23:59:59.5'::timestamp + g * interval '1 day 1 us',
      '1969-12-31 00:00:00+00'::timestamptz + g * interval '1 h', 'Zeile ' || g || '🐘:', 'v' || g, 'c',
      decode(md5(g::text), 'hex'), json_build_object('a', g), g * interval '1 min', ARRAY[g, NULL], ROW(g, NULL)::pair,
      '10.0.0.1', '2:ab' FROM generate_series(1, 300) g""",
    "INSERT INTO big SELECT -g, md5(g::text)::uuid FROM generate_series(1, 9) g",
    """UPDATE big SET f4 = 'NaN', f8 = '-0', n = -0.0000000001, i2 = -32768, i4 = 2147483647, t = '', bin = '',
      d = '0001-01-01', ts = '9999-12-31 23:59:59.999999', p = ROW(NULL, NULL)::pair WHERE id = -1""",
    """UPDATE big SET f4 = '-Infinity', f8 = 5e-324, n = 9999999999999999999999999999.9999999999, o = 4294967295
      WHERE id = -2""",
)
# one value of each that the lake cannot hold, in rows of their own
MISFITS = {
    3: ("d", "infinity"),
    4: ("ts", "-infinity"),
    5: ("tz", "10000-01-01"),
    6: ("d", "0001-01-01 BC"),
    7: ("n", "NaN"),
}


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_values_of_all_types(database: Database, tmp_path: Path, rows_sent: list[int], form: str) -> None:
    """What we have loaded into another lake has just our values. Of misfits it has null, and they are read."""
    misfits = [f"UPDATE big SET {column} = '{text}' WHERE id = -{row}" for row, (column, text) in MISFITS.items()]
    database.execute(*OF_ALL_TYPES, *misfits)
    other = pipeline_of(database, tmp_path / "other", "public.big", slot=f"{database.name}_other")
    synced_without_spark(replace(other, on_unrepresentable="null"))
    copied = DeltaTable(other.lake.table(BIG))
    path = str(tmp_path / "copy") if form == "parquet" else other.lake.table(BIG)
    if form == "parquet":
        ds.write_dataset(rows_of_table(copied), path, format="parquet", partitioning=["i2"], partitioning_flavor="hive")
    rows_sent.clear()
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), on_unrepresentable="null")
    pipeline = replace(pipeline, tables=(Table(BIG, adopt=Adopted(path)),))
    assert [table.rows for table in synced_without_spark(pipeline).snapshots] == [309]
    assert sum(rows_sent) == len(MISFITS)
    ours = rows_of_table(DeltaTable(pipeline.lake.table(BIG))).sort_by("id")
    assert ours.to_pylist().__repr__() == rows_of_table(copied).sort_by("id").to_pylist().__repr__()
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"]


NOT_OURS = (
    (Adopted("nowhere"), "there is neither a Delta table nor a Parquet file"),
    (Adopted("theirs", (("n", "number"),)), "it has no column number"),
    (Adopted("theirs", (("n", "text"),)), "its column text is string, and n int"),
    (Adopted("theirs", (("n", "many"),)), "its column many has a value that n, int, does not hold"),
    (Adopted("lake/tables/public/other"), "it lies in lake.path, which holds our own tables"),
)


def test_what_cannot_become_ours_is_refused_by_name(large: LargeTable) -> None:
    folder, rows = Path(large.pipeline.lake.path).parent, large.as_copied()
    more = {"many": pa.array([1 << 40] * ROWS), "filler": rows.column("text")}
    for name, column in more.items():
        rows = rows.append_column(name, column)
    write_deltalake(str(folder / "theirs"), rows, mode="overwrite", schema_mode="overwrite")
    (table,) = large.pipeline.tables or ()

    def refused(table: Table) -> str:
        assert table.adopt is not None
        named = replace(table, adopt=replace(table.adopt, path=str(folder / table.adopt.path)))
        pipeline = replace(large.pipeline, tables=(named,), mask_salt=SecretStr("salt"))
        (error,) = sync(pipeline, no_spark).errors
        assert isinstance(error, PreconditionError)
        return error.what.partition(f"public.big cannot adopt the rows of {named.adopt and named.adopt.path}: ")[2]

    for adopt, why in NOT_OURS:
        assert refused(replace(table, adopt=adopt)) == why
    masked = replace(table, adopt=Adopted("theirs"))
    assert refused(replace(masked, mask=("n",))) == "it has masked columns"
    assert refused(replace(masked, mask=("id",))).startswith("no row of it can be read by its key")
    assert not Path(large.pipeline.lake.table(BIG)).exists()


def _is_a_file(path: Path) -> None:
    path.write_text("no folder")


def _holds_no_parquet(path: Path) -> None:
    path.mkdir()
    (path / "rows.parquet").write_text("no Parquet")


def _has_a_damaged_checkpoint(path: Path) -> None:
    """Of a table of ours it would be removed."""
    write_deltalake(str(path), pa.table({"id": [1]}))
    DeltaTable(str(path)).create_checkpoint()
    (path / "_delta_log" / f"{0:020}.checkpoint.parquet").write_text("no Parquet")


@pytest.mark.parametrize("damage", [_is_a_file, _holds_no_parquet, _has_a_damaged_checkpoint])
def test_what_cannot_be_read_is_named_with_its_table(large: LargeTable, damage: Callable[[Path], None]) -> None:
    """The hint is not about lake.path, where all is well."""
    theirs = Path(large.pipeline.lake.path).parent / "unreadable"
    damage(theirs)
    before = sorted(theirs.rglob("*"))
    (table,) = large.pipeline.tables or ()
    adopting = replace(table, adopt=Adopted(str(theirs)))
    (error,) = sync(replace(large.pipeline, tables=(adopting,)), no_spark).errors
    assert isinstance(error, LakeError)
    assert error.what.startswith(f"public.big cannot adopt the rows of {theirs}: ")
    assert error.hint.startswith("correct adopt in the table's entry")
    assert sorted(theirs.rglob("*")) == before


def test_what_only_spark_can_read_is_named(large: LargeTable) -> None:
    first = theirs(large) / "_delta_log" / f"{0:020}.json"
    widens = '"readerFeatures":["typeWidening"],"writerFeatures":["typeWidening"]'
    protocol = f'{{"minReaderVersion":3,"minWriterVersion":7,{widens}}}'
    said = re.sub(r'(?<="protocol":)\{.*?\}', protocol, first.read_text(), count=1)
    assert protocol in said
    first.write_text(said)
    (error,) = sync(large.pipeline, no_spark).errors
    assert error.what == (
        f"public.big cannot adopt the rows of {theirs(large)}: only Spark can read it, because of typeWidening"
    )
