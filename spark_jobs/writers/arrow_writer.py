"""Net changes written by the driver's process: data files from Arrow, commits and MERGE from ``deltalake``.

https://delta-io.github.io/delta-rs/usage/merging-tables/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
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
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.write_limits import WriteLimits
from spark_jobs.writers.file_layout import file_layout
from spark_jobs.writers.held_rows import held_rows_within
from spark_jobs.writers.merge_sql import RANGED, key_matches, quoted
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.opened_table import FEATURES, OpenedTable
from spark_jobs.writers.rewritten_rows import new_rows, rewritten
from spark_jobs.writers.table_commit import Provenance, numbered_commit
from spark_jobs.writers.write_choice import WriteWay

_log = logging.getLogger(__name__)

_STATISTICS = ColumnProperties(statistics_enabled="CHUNK")
_NO_STATISTICS = ColumnProperties(statistics_enabled="NONE")


@dataclass(frozen=True)
class ArrowWriter:
    """Writes to a table at the version at which it was opened. See ``TableWriter``.

    Rows are in memory: those of the net change, and the whole table's for a rewrite. Many rows are written in several
    files at once. After a LakeError no file is left; after an error at the commit it may have been made, so the files
    are kept.
    """

    opened: OpenedTable
    limits: WriteLimits

    def write(self, net: NetSource, way: WriteWay, provenance: Provenance) -> int | None:
        opened = self.opened
        commit = numbered_commit(opened.opened, provenance)
        if commit is None:
            return None
        with commit_errors(opened.path):
            try:
                version = _merge(opened, net, commit) if way.strategy == "merge" else self._add(net, way, commit)
            except CommitFailedError:
                raise
            except DeltaError as error:
                if is_of_storage(error):
                    raise
                # harmless if the commit was made before the error: then Spark's commit of the same number is skipped
                _log.warning("%s is left to Spark, as deltalake failed: %s", opened.path, first_line(error))
                return None
        if version is not None:
            keep_written(opened.opened, commit)
        return version

    def _add(self, net: NetSource, way: WriteWay, commit: CommitProperties) -> int | None:
        """None if Spark has to do it: for a row that is not there, or for the size of those that are."""
        rows = self._rewritten(net) if way.strategy == "rewrite" else new_rows(net)
        if rows is None:
            return None
        opened, layout = self.opened, file_layout(rows.schema, *self.opened.in_files(rows.column_names))
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
        mode: FilesMode = "append" if way.strategy == "append" else "overwrite"
        commit_files(opened.table, actions, mode, opened.table.schema(), commit)
        return opened.opened.log.version + 1

    def _rewritten(self, net: NetSource) -> pa.Table | None:
        held = held_rows_within(self.opened.table, self.limits.in_memory_bytes)
        return None if held is None else rewritten(held, net)

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """One for each core."""
        step = max(self.limits.rows_of_file, -(-rows.num_rows // pa.cpu_count()))
        return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


def commit_without_rows_here(opened: OpenedTable, provenance: Provenance) -> bool:
    """A commit that only records its provenance. False if Spark has to make it. Raises OvertakenError and LakeError."""
    commit = numbered_commit(opened.opened, provenance)
    if commit is None or not opened.features <= FEATURES:
        return False
    with commit_errors(opened.path):
        commit_files(opened.table, [], "append", opened.schema, commit)
    keep_written(opened.opened, commit)
    return True


def _merge(opened: OpenedTable, net: NetSource, commit: CommitProperties) -> int:
    """Returns the new version."""
    shape, rows = net.columns.shape, net.in_memory
    assert rows is not None
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
