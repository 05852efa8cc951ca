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
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import table_filesystem
from spark_jobs.errors import LakeError, OvertakenError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

# cut      counts up; the highest is the latest
# window   ordinal of the last window that every listed table has been brought to
# lsn      that window's end
# commits  how many commits of ours the table had
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
        pa.field("commits", pa.int64()),
    ]
)

# the version of a table whose snapshot is being replaced: no cut shows it until the next apply
_FORGOTTEN = -1
# the cuts' application transactions count them, so that of two writers that saw one latest cut one commits
_APP_ID = "pgcdc:cuts"
_ATTEMPTS = 5


@dataclass(frozen=True)
class TableCut:
    """One table in a cut: read it at Delta ``version``. ``relid`` and ``generation`` say from which snapshot it grew,
    ``commits`` how many commits of ours it had."""

    name: QualifiedName
    relid: int
    generation: str
    version: int
    commits: int = 0


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
    return _latest(lake)[1]


def _latest(lake: Lake) -> tuple[DeltaTable | None, Cut | None]:
    """With the handle that it was read through."""
    with _lake_errors(lake):
        try:
            cuts = DeltaTable(lake.cuts)
        except TableNotFoundError:
            return None, None
        numbers = pa.table(cuts.get_add_actions(flatten=True)).column("max.cut").to_pylist()
        if not numbers:
            return cuts, None
        dataset = cuts.to_pyarrow_dataset(filesystem=table_filesystem(lake.cuts))
        rows = dataset.to_table(filter=pc.field("cut") == max(numbers)).to_pylist()
    tables = tuple(
        TableCut(
            QualifiedName(row["nspname"], row["relname"]),
            row["relid"],
            row["generation"],
            row["version"],
            row.get("commits") or 0,
        )
        for row in rows
        if row["version"] != _FORGOTTEN
    )
    first = rows[0]
    return cuts, Cut(first["cut"], first["window"], Lsn(first["lsn"]), tables)


@contextmanager
def _lake_errors(lake: Lake) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(
            f"the cuts at {lake.cuts} cannot be read or written: {error}",
            hint="they may be moved away: the next sync writes new ones",
        ) from error


@retry(retry=retry_if_exception_type(OvertakenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True)
def write_cut(
    lake: Lake, ordinal: int, lsn: Lsn, tables: tuple[TableCut, ...], *, based_on: Cut | None = None
) -> Cut | None:
    """Append a cut and return the latest one: the old one where nothing has changed, or where it is of a later window
    already; None where nothing is cut.

    ``based_on``: the latest one when the work behind ``tables`` began. A table that was forgotten since is left out.
    Raises LakeError; OvertakenError when other writers are quicker again and again.
    """
    handle, latest = _latest(lake)
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
            "commits": table.commits,
        }
        for table in tables
    ]
    with _lake_errors(lake):
        _append(lake, handle, pa.Table.from_pylist(rows, schema=CUTS_SCHEMA), cut.number)
    return cut


def _append(lake: Lake, handle: DeltaTable | None, rows: pa.Table, number: int) -> None:
    """Through the handle that the latest cut was read with: a cut that was written in between makes it fail."""
    try:
        write_deltalake(
            handle or lake.cuts,
            rows,
            mode="append" if handle else "error",
            schema_mode="merge" if handle else None,  # a lake that an older version began lacks a column
            commit_properties=CommitProperties(app_transactions=[Transaction(_APP_ID, number)]),
        )
    except CommitFailedError as error:
        raise OvertakenError(f"another process has written the cuts at {lake.cuts}", hint="run it again") from error
    except DeltaError:
        if handle is None and latest_cut(lake) is not None:
            raise OvertakenError(f"another process has made the cuts at {lake.cuts}", hint="run it again") from None
        raise


def forget(lake: Lake, names: Collection[QualifiedName]) -> None:
    """Before tables are snapshotted anew: the latest cut no longer speaks for them."""
    latest = latest_cut(lake)
    if latest is None:
        return
    if any(table.name in names for table in latest.tables):
        marked = (replace(table, version=_FORGOTTEN) if table.name in names else table for table in latest.tables)
        write_cut(lake, latest.ordinal, latest.lsn, tuple(marked))
