"""Net changes written by the driver's process: data files from Arrow, commits and MERGE from ``deltalake``.

https://delta-io.github.io/delta-rs/usage/merging-tables/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import ColumnProperties, CommitProperties, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from spark_jobs.decode.threads import in_threads
from spark_jobs.delta.append import FilesMode, after_commit, commit_files
from spark_jobs.delta.commit_errors import commit_errors, is_of_storage
from spark_jobs.delta.data_files import DataFiles, row_groups
from spark_jobs.delta.files import table_filesystem
from spark_jobs.delta.written_tables import keep_written
from spark_jobs.errors import first_line
from spark_jobs.schema.net_columns import DELETE, OPERATION, UPSERT, value
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.file_layout import file_layout
from spark_jobs.writers.held_rows import held_rows
from spark_jobs.writers.merge_sql import RANGED, key_matches, quoted
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.opened_table import OpenedTable
from spark_jobs.writers.table_commit import Provenance, numbered_commit
from spark_jobs.writers.write_choice import WriteWay

_log = logging.getLogger(__name__)

_STATISTICS = ColumnProperties(statistics_enabled="CHUNK")
_NO_STATISTICS = ColumnProperties(statistics_enabled="NONE")


@dataclass(frozen=True)
class ArrowWriter:
    """Writes to a table at the version at which it was opened. See ``TableWriter``.

    Rows are in memory: those of the net change, and the whole table's for a rewrite. Many rows are written in several
    files at once, each of ``rows_of_file`` at least. After a LakeError no file is left; after an error at the commit it
    may have been made, so the files are kept.
    """

    opened: OpenedTable
    rows_of_file: int

    def write(self, net: NetSource, way: WriteWay, provenance: Provenance) -> int | None:
        opened, rows, shape = self.opened, net.in_memory, net.columns.shape
        commit = numbered_commit(opened.opened, provenance)
        if rows is None or commit is None:
            return None
        with commit_errors(opened.path):
            try:
                if way.strategy == "append":
                    version = self._add(_values(shape, rows), shape, "append", commit)
                elif way.strategy == "rewrite":
                    version = self._add(_rewritten(opened, shape, rows), shape, "overwrite", commit)
                else:
                    version = _merge(opened, net, rows, commit)
            except CommitFailedError:
                raise
            except DeltaError as error:
                if is_of_storage(error):
                    raise
                # harmless if the commit was made before the error: then Spark's commit of the same number is skipped
                _log.warning("%s is left to Spark, as deltalake failed: %s", opened.path, first_line(error))
                return None
        keep_written(opened.opened, commit)
        return version

    def _add(self, rows: pa.Table, shape: TableShape, mode: FilesMode, commit: CommitProperties) -> int:
        opened, layout = self.opened, file_layout(shape.columns, *self.opened.in_files(shape.columns))
        rows = rows.rename_columns(layout.schema.names).cast(layout.schema)
        filesystem = table_filesystem(opened.path)
        pieces = [(DataFiles(filesystem, opened.path, layout), piece) for piece in self._pieces(rows)]

        def write(to: tuple[DataFiles, pa.Table]) -> None:
            files, piece = to
            for group in row_groups(piece.to_batches()):
                files.write(pa.Table.from_batches(group))
            files.close()

        try:
            in_threads(write, pieces)
        except BaseException:
            for files, _ in pieces:
                files.remove()
            raise
        actions = [action for files, _ in pieces for action in files.actions]
        commit_files(opened.table, actions, mode, opened.table.schema(), commit)
        return opened.opened.log.version + 1

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """One for each core."""
        step = max(self.rows_of_file, -(-rows.num_rows // pa.cpu_count()))
        return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


def _rewritten(opened: OpenedTable, shape: TableShape, net: pa.Table) -> pa.Table:
    """All rows of the table, with the net change in them."""
    keys = [shape.columns[place].name for place in shape.key_indices]
    changed = [value(place) for place in shape.key_indices]
    held = held_rows(opened.table).select([column.name for column in shape.columns]).cast(_schema(shape.columns))
    unchanged = held.join(net.select(changed), keys, changed, join_type="left anti")
    upserts = net.filter(pc.equal(net.column(OPERATION), UPSERT))
    return pa.concat_tables([unchanged, _values(shape, upserts)])


def _values(shape: TableShape, net: pa.Table) -> pa.Table:
    named = net.select([value(place) for place in range(len(shape.columns))])
    return named.rename_columns([column.name for column in shape.columns]).cast(_schema(shape.columns))


def _schema(columns: Sequence[LakeColumn]) -> pa.Schema:
    return pa.schema([(column.name, column.lake_type.arrow) for column in columns])


def _merge(opened: OpenedTable, net: NetSource, rows: pa.Table, commit: CommitProperties) -> int:
    """Returns the new version."""
    shape = net.columns.shape
    values = {quoted(column.name): f"s.{value(place)}" for place, column in enumerate(shape.columns)}
    keys = {quoted(shape.columns[place].name) for place in shape.key_indices}
    merge = opened.table.merge(
        rows,
        predicate=" AND ".join(key_matches(shape, net.key_range)),
        source_alias="s",
        target_alias="t",
        writer_properties=_written(opened, shape),
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    ).when_matched_delete(f"s.{OPERATION} = {DELETE}")
    if updates := {name: new for name, new in values.items() if name not in keys}:
        merge = merge.when_matched_update(updates, predicate=f"s.{OPERATION} = {UPSERT}")
    merge = merge.when_not_matched_insert(values, predicate=f"s.{OPERATION} = {UPSERT}")
    merge.execute()
    return int(opened.table.version())


def _written(opened: OpenedTable, shape: TableShape) -> WriterProperties:
    """Statistics of integers and dates. ``deltalake`` writes those of decimals as doubles and ignores NaN in those of
    floats: with them Spark would skip files that it has to read."""
    ranged = {opened.physical[column.name]: _STATISTICS for column in shape.columns if column.lake_type.kind in RANGED}
    return WriterProperties(
        compression="SNAPPY", default_column_properties=_NO_STATISTICS, column_properties=ranged or None
    )
