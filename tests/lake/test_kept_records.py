"""``_unrepresentable`` is kept like the other tables of the lake, though its rows have no common number."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_jobs.configuration import Lake
from spark_jobs.delta.upkeep import RowsToRemove, remove_rows
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.unrepresentable import RecordsOf, keep_records_small, records_table
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.misfits import RECORDS_SCHEMA, Misfits

RECORD = {"key": '{"id": "1"}', "column": "day", "lsn": 1, "source_text": "infinity", "stored": None}
MISFITS = Misfits({"day": 1}, pa.Table.from_pylist([RECORD], RECORDS_SCHEMA))


def records_of(lake: Lake, table: str) -> RecordsOf:
    return RecordsOf(lake, QualifiedName("public", table), "pgcdc:1:s:", Generation(Lsn(1)))


def recorded(lake: Lake, table: str, commit: int) -> None:
    records = records_of(lake, table)
    records.add(records.written(MISFITS, commit))


def held(lake: Lake) -> list[tuple[str, int]]:
    rows = DeltaTable(lake.unrepresentable).to_pyarrow_table(columns=["table", "commit"]).to_pylist()
    return sorted((row["table"], row["commit"]) for row in rows)


def test_records_expire_by_age_and_the_others_are_put_together(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    assert keep_records_small(lake, timedelta()) is None
    recorded(lake, "a", 900)
    recorded(lake, "b", 2)
    time.sleep(1)
    recorded(lake, "b", 3)
    recorded(lake, "a", 901)
    kept = keep_records_small(lake, timedelta(seconds=1))
    assert kept is not None
    assert (kept.files_before, kept.files_after, kept.deleted, kept.overdue) == (4, 1, 0, False)
    assert held(lake) == [("public.a", 901), ("public.b", 3)]
    recorded(lake, "b", 3)  # it is added once
    assert held(lake) == [("public.a", 901), ("public.b", 3)]


def test_removed_records_are_in_no_file(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    for table, commit in (("a", 1), ("b", 1), ("a", 2)):
        recorded(lake, table, commit)
    keep_records_small(lake, timedelta(days=1))  # the replaced files hold them, too
    records_of(lake, "a").written(MISFITS, 3)  # by a process that was killed
    records = records_table(lake)
    assert records is not None

    def chosen(rows: pa.RecordBatch) -> pa.Array:
        return pc.equal(rows.column("table"), "public.a")

    remove_rows(records, RowsToRemove(chosen, lambda _: True, chosen))
    assert held(lake) == [("public.b", 1)]
    left = [pq.read_table(file).column("table").to_pylist() for file in Path(lake.unrepresentable).glob("*.parquet")]
    assert {name for names in left for name in names} == {"public.b"}
