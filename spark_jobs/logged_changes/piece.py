"""A piece of a table's changes: what one task decodes, on the driver or on an executor, from the log's files alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA, RowKind
from spark_jobs.decode.ordered_changes import plain_columns
from spark_jobs.delta.files import lake_errors, table_filesystem
from spark_jobs.logged_changes.change_rows import DESCRIBING, change_rows, in_batches
from spark_jobs.logicalrep.lsn import Position
from spark_jobs.storage import Location

_KINDS = [kind.value for kind in (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE, RowKind.TRUNCATE)]
_DESCRIBING = tuple(column.net for column in DESCRIBING)
_READ = (*_DESCRIBING, "kind", "version", "data")
_BATCH_ROWS = 32_768


@dataclass(frozen=True)
class Piece:
    """The changes of the table ``relid`` in the windows ``first`` to ``last``, from ``since`` on and before ``until``,
    None: without a bound. ``files``: those of the change log at ``log`` that may hold them."""

    log: Location
    files: tuple[str, ...]
    relid: int
    first: int
    last: int
    rules: NetRules
    since: Position | None = None
    until: Position | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The changes as ``change_rows`` makes them, in total order. Raises as that, and LakeError."""
        rows = plain_columns(self._table(_READ), _DESCRIBING)
        if len(rows):
            yield from in_batches(change_rows(rows, self.rules), _BATCH_ROWS)

    def positions(self) -> pa.Table:
        """The columns ``commit_lsn`` and ``ordinal`` of the changes, in order. Raises LakeError."""
        positions = self._table(("commit_lsn", "ordinal"))
        return positions.sort_by([("commit_lsn", "ascending"), ("ordinal", "ascending")])

    def _table(self, columns: tuple[str, ...]) -> pa.Table:
        window = pc.field("window")
        condition = (window >= self.first) & (window <= self.last) & (pc.field("relid") == self.relid)
        condition &= pc.field("kind").isin(_KINDS)
        if self.since is not None:
            condition &= _is_from(self.since)
        if self.until is not None:
            condition &= ~_is_from(self.until)
        with lake_errors(f"the change log {self.log} cannot be read"):
            dataset = ds.FileSystemDataset.from_paths(
                list(self.files),
                schema=CHANGE_LOG_SCHEMA,
                format=ds.ParquetFileFormat(),
                filesystem=table_filesystem(self.log),
            )
            return dataset.to_table(columns=list(columns), filter=condition)


def _is_from(position: Position) -> pc.Expression:
    """Whether a row is at or after ``position``."""
    lsn, ordinal = pc.field("commit_lsn"), pc.field("ordinal")
    at = int(position.commit_lsn)
    return (lsn > at) | ((lsn == at) & (ordinal >= position.ordinal))
