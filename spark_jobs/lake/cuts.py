"""Consistent cuts: one LSN, and for each table the Delta version that shows it as of that LSN.

Every apply that brings tables to one window's end appends a cut to ``{lake.path}/cuts``, one row per table. Reading
each table at the version of one cut shows the source database at one LSN, foreign keys and all. The latest cut is also
the index that spares idle tables: what it lists needs no look at the Delta table itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from spark_jobs.configuration import Lake
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_state import TableState
from spark_jobs.lake_files import table_filesystem
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

# cut      counts up; the highest is the latest
# window   ordinal of the last window that every listed table has been brought to
# lsn      that window's end
CUTS_SCHEMA = pa.schema(
    [
        pa.field("cut", pa.int64(), nullable=False),
        pa.field("window", pa.int64(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("nspname", pa.string(), nullable=False),
        pa.field("relname", pa.string(), nullable=False),
        pa.field("relid", pa.int64(), nullable=False),
        pa.field("generation", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
    ]
)

# the version of a table whose snapshot is being replaced: no cut shows it until the next apply
_FORGOTTEN = -1


@dataclass(frozen=True)
class TableCut:
    """One table in a cut: read it at Delta ``version``. ``relid`` and ``generation`` say of which snapshot it grew."""

    name: QualifiedName
    relid: int
    generation: str
    version: int


@dataclass(frozen=True)
class Cut:
    """The state of ``tables`` at ``lsn``, the end of window ``ordinal``."""

    number: int
    ordinal: int
    lsn: Lsn
    tables: tuple[TableCut, ...]

    def table(self, name: QualifiedName) -> TableCut | None:
        return next((table for table in self.tables if table.name == name), None)


def latest_cut(lake: Lake) -> Cut | None:
    """The cut written last, or None before the first. Raises LakeError."""
    with _lake_errors(lake):
        try:
            cuts = DeltaTable(lake.cuts)
        except TableNotFoundError:
            return None
        numbers = pa.table(cuts.get_add_actions(flatten=True)).column("max.cut").to_pylist()
        if not numbers:
            return None
        dataset = cuts.to_pyarrow_dataset(filesystem=table_filesystem(lake.cuts))
        rows = dataset.to_table(filter=pc.field("cut") == max(numbers)).to_pylist()
    tables = tuple(
        TableCut(QualifiedName(row["nspname"], row["relname"]), row["relid"], row["generation"], row["version"])
        for row in rows
        if row["version"] != _FORGOTTEN
    )
    first = rows[0]
    return Cut(first["cut"], first["window"], Lsn(first["lsn"]), tables)


@contextmanager
def _lake_errors(lake: Lake) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(
            f"the cuts at {lake.cuts} cannot be read or written: {error}",
            hint="they may be moved away: the next sync writes new ones",
        ) from error


def known_state(state: TableState, cut: Cut | None) -> TableState:
    """``state``, as a table's own commits tell it, with what ``cut`` knows better: windows that changed nothing of the
    table left no commit in it.

    By generation, never by Delta version: an OPTIMIZE makes versions that show the same rows.
    """
    known = cut.table(state.name) if cut else None
    if cut is None or known is None or known.generation != state.generation:
        return state
    return replace(state, ordinal=max(state.ordinal, cut.ordinal), relid=known.relid)


def write_cut(
    lake: Lake, ordinal: int, lsn: Lsn, tables: tuple[TableCut, ...], *, based_on: Cut | None = None
) -> Cut | None:
    """Append a cut and return the latest one: the old one where nothing has changed, or where it is of a later window
    already; None where nothing is cut.

    ``based_on``: the latest one when the work behind ``tables`` began. A table that was forgotten since is left out.
    """
    latest = latest_cut(lake)
    if latest is not None and latest.ordinal > ordinal:
        return latest
    if latest is not None and based_on is not None:
        gone = {table.name for table in based_on.tables} - {table.name for table in latest.tables}
        tables = tuple(table for table in tables if table.name not in gone)
    cut = Cut(latest.number + 1 if latest else 1, ordinal, lsn, tables)
    if not tables or (latest is not None and replace(cut, number=latest.number) == latest):
        return latest
    rows = [
        {
            "cut": cut.number,
            "window": ordinal,
            "lsn": int(lsn),
            "nspname": table.name.nspname,
            "relname": table.name.relname,
            "relid": table.relid,
            "generation": table.generation,
            "version": table.version,
        }
        for table in tables
    ]
    with _lake_errors(lake):
        write_deltalake(lake.cuts, pa.Table.from_pylist(rows, schema=CUTS_SCHEMA), mode="append")
    return cut


def forget(lake: Lake, names: Collection[QualifiedName]) -> None:
    """Before tables are snapshotted anew: the latest cut no longer speaks for them."""
    latest = latest_cut(lake)
    if latest is None:
        return
    if any(table.name in names for table in latest.tables):
        marked = (replace(table, version=_FORGOTTEN) if table.name in names else table for table in latest.tables)
        write_cut(lake, latest.ordinal, latest.lsn, tuple(marked))
