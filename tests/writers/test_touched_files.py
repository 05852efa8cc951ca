"""A merge without Spark writes those files anew that hold a changed row, and no others."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Lake
from spark_jobs.delta.data_files import DataFiles
from spark_jobs.delta.files import create_local_folder
from spark_jobs.lake.generation import Generation
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType
from spark_jobs.schema.net_columns import NetColumns, arrow_schema
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import KeyRange
from spark_jobs.writers.net_source import NetSource, key_range_of
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow.arrow_writer import ArrowWriter
from spark_jobs.writers.with_arrow.opened_table import facts_of, opened_table
from spark_jobs.writers.with_arrow.whole_table import WholeTable
from spark_jobs.writers.write_choice import WriteWay
from tests.at_night import at_night

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MERGE = WriteWay("deltalake", "merge")
ROWS = 10  # of each file
LARGE = 2_000_000
_CHANGE_EACH_FILE = """
import resource, sys
from pathlib import Path
from tests.writers.test_touched_files import LARGE, Table
_, lake, files, keyed = sys.argv
table, rows = Table.at(Path(lake), "int", keyed=bool(keyed)), range(0, int(files) * LARGE, LARGE)
print(table.merge(rows) if keyed else table.remove(rows))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@dataclass
class Table:
    """Files of ``ROWS`` rows each, with keys from 0 on in one after the other: integers, or texts without a range."""

    path: Location
    shape: TableShape
    commits: int = 1

    @classmethod
    def at(cls, lake: Path, key: str, *, keyed: bool = True) -> Table:
        kinds = {name: LakeType.of_sql(sql) for name, sql in (("id", key), ("n", "int"))}
        columns = tuple(
            LakeColumn(name, number, kind, keyed and name == "id")
            for number, (name, kind) in enumerate(kinds.items(), 1)
            if kind
        )
        name = QualifiedName("public", "t")
        return cls(Lake(str(lake)).table(name), TableShape(5, name, columns))

    @classmethod
    def of(cls, lake: Path, key: str, files: int, *, keyed: bool = True, rows: int = ROWS) -> Table:
        table = cls.at(lake, key, keyed=keyed)
        whole = WholeTable.of(table.path, table.shape, table._provenance())
        assert whole is not None
        create_local_folder(table.path)
        actions = []
        for first in range(0, files * rows, rows):
            written = DataFiles(table.path, whole.layout)
            numbers = np.arange(first, first + rows, dtype=np.int32)
            keys = numbers if key == "int" else [table.key(int(n)) for n in numbers]
            written.write_all(pa.table([keys, np.zeros_like(numbers)], whole.layout.schema).to_batches())
            actions += written.actions
        whole.commit(actions, files * rows, table._provenance())
        return table

    def key(self, n: int) -> int | str:
        return n if self.shape.columns[0].lake_type.sql == "int" else f"key {n}"

    def merge(
        self, upserts: Sequence[int], deletes: Sequence[int] = (), limits: WriteLimits | None = None
    ) -> int | None:
        net = [{"op": 1, "v0": self.key(n), "v1": self.commits + 1} for n in upserts]
        net += [{"op": 0, "v0": self.key(n)} for n in deletes]
        return self._written(net, limits)

    def remove(self, rows: Sequence[int]) -> int | None:
        """Of a table without a key."""
        copies = Counter(rows).items()
        return self._written([{"copies": -each, "v0": self.key(n), "v1": 0} for n, each in copies], None)

    def _written(self, net: Sequence[dict[str, Any]], limits: WriteLimits | None) -> int | None:
        columns = NetColumns(self.shape)
        rows = pa.Table.from_pylist(net, arrow_schema(columns.fields))
        key_range = key_range_of(rows, self.shape)
        source = NetSource(columns, False, False, key_range, _no_spark, rows.num_rows, in_memory=rows)
        opened = opened_table(self.path, self.commits - 1)
        assert opened is not None
        provenance = replace(self._provenance(), commits=self.commits + 1)
        version = ArrowWriter(opened, limits or WriteLimits()).write(source, MERGE, provenance)
        self.commits += version is not None
        return version

    def files(self) -> set[str]:
        return {*DeltaTable(self.path).file_uris()}

    def rows(self) -> dict[int | str, int]:
        found = DeltaTable(self.path).to_pyarrow_table()
        return dict(zip(*(found.column(name).to_pylist() for name in ("id", "n")), strict=True))

    def _provenance(self) -> Provenance:
        ends = (self.commits, self.commits, Lsn(16 * self.commits), Lsn(16 * self.commits + 8))
        return Provenance(7, "slot", Generation(Lsn(16)), *ends, 5, self.commits)


def _no_spark(_: SparkSession) -> DataFrame:
    raise AssertionError("the rows are in memory")


@pytest.mark.parametrize("key", ["int", "string"])
def test_other_files_stay(tmp_path: Path, key: str) -> None:
    table = Table.of(tmp_path, key, 4)
    before = table.files()
    assert table.merge([12, 15, 40], deletes=[13, 99]) == 1
    assert len(before - table.files()) == len(table.files() - before) == 1
    expected = {table.key(n): 0 for n in range(40) if n != 13} | {table.key(n): 2 for n in (12, 15, 40)}
    assert table.rows() == expected
    touched = DeltaTable(table.path).history(1)[0]
    assert touched["operation"] == "WRITE"


def test_new_keys_rewrite_nothing(tmp_path: Path) -> None:
    table = Table.of(tmp_path, "string", 2)
    before = table.files()
    table.merge([100])
    assert before < table.files()
    table.merge([], deletes=[101])
    assert len(table.files()) == 3


def test_files_become_no_more(tmp_path: Path) -> None:
    """However many cores write them."""
    table = Table.of(tmp_path, "int", 3)
    for turn in range(12):
        table.merge([turn, turn + 10, 30 + turn], limits=WriteLimits(rows_of_file=1))
        assert len(table.files()) <= 3
    table.merge([], deletes=range(50))
    assert (table.files(), table.rows()) == (set(), {})
    table.merge([1])
    assert table.rows() == {1: 15}


def test_each_core_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)
    table = Table.of(tmp_path, "int", 2)
    before = table.files()
    table.merge([1, 11, *range(100, 120)], limits=WriteLimits(rows_of_file=ROWS))
    assert len(table.files() - before) == len(table.files()) == 2


def test_a_file_with_a_name_that_deltalake_writes_otherwise_is_not_removed_alone(tmp_path: Path) -> None:
    table = Table.of(tmp_path, "int", 2)
    (first, _), log = sorted(Path(table.path).glob("*.parquet")), next(Path(table.path).glob("_delta_log/*.json"))
    log.write_text(log.read_text().replace(first.name, f"a%20{first.name}"))
    first.rename(first.with_name(f"a {first.name}"))
    opened, columns = opened_table(table.path, 0), NetColumns(table.shape)
    assert opened is not None
    assert [facts_of(opened, columns, KeyRange(n, n)).only_as_a_whole for n in (1, 11)] == [
        "%20" in name for name in opened.files_in_range(table.shape, None).column("path").to_pylist()
    ]


def test_of_a_table_without_a_key_files_without_a_row_that_goes_stay(tmp_path: Path) -> None:
    table = Table.of(tmp_path, "string", 3, keyed=False)
    before = table.files()
    assert table.remove([3, 13, 13]) is None, "there is one 13"
    assert table.files() == before == {*map(str, Path(table.path).glob("*.parquet"))}
    assert table.remove([3, 13]) == 1
    assert len(before - table.files()) == 2
    assert table.rows() == {table.key(n): 0 for n in range(30) if n not in (3, 13)}


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, at_night(False)])
def test_peak_memory_is_the_same_for_four_times_the_rows(tmp_path: Path, keyed: bool) -> None:
    """In a process of its own for each, so that peaks compare."""
    peaks = []
    for files in (2, 8):
        lake = tmp_path / str(files)
        table = Table.of(lake, "int", files, keyed=keyed, rows=LARGE)
        before = table.files()
        command = [sys.executable, "-c", _CHANGE_EACH_FILE, str(lake), str(files), "keyed" if keyed else ""]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        version, peak = done.stdout.split()
        assert version == "1"
        assert not before & table.files()
        peaks.append(int(peak))
    # the rows take 96 MB more, and those of the six files twice that in passing
    assert peaks[1] - peaks[0] < 50, peaks
