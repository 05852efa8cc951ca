"""Net changes written by the driver's process: data files from Arrow, commits by ``deltalake``. A merge replaces the
files that hold a changed row."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from spark_jobs.decode.threads import in_threads
from spark_jobs.delta.append import FilesMode, commit_files
from spark_jobs.delta.commit_errors import commit_errors, is_of_storage
from spark_jobs.delta.data_files import DataFiles, row_groups
from spark_jobs.delta.files import table_filesystem
from spark_jobs.delta.written_tables import is_made, keep_written
from spark_jobs.errors import first_line
from spark_jobs.write_limits import WriteLimits
from spark_jobs.writers.file_layout import file_layout
from spark_jobs.writers.held_rows import held_rows_within
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.opened_table import FEATURES, OpenedTable
from spark_jobs.writers.rewritten_rows import new_rows, rewritten
from spark_jobs.writers.table_commit import Provenance, numbered_commit
from spark_jobs.writers.touched_files import TouchedFiles, touched_files
from spark_jobs.writers.write_choice import WriteWay

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArrowWriter:
    """Writes to a table at the version at which it was opened. See ``TableWriter``.

    Rows are in memory: those of the net change, those of touched files for a merge, and the whole table's for a
    rewrite. Many rows are written in several files at once. After a LakeError no file is left; after an error at the
    commit it may have been made, so the files are kept.
    """

    opened: OpenedTable
    limits: WriteLimits

    def write(self, net: NetSource, way: WriteWay, provenance: Provenance) -> int | None:
        opened = self.opened
        commit = numbered_commit(opened.opened, provenance)
        if commit is None:
            return None
        with commit_errors(opened.path, is_made=partial(is_made, opened.opened, commit)):
            try:
                if not self._is_written(net, way, commit):
                    return None
            except CommitFailedError:
                raise
            except DeltaError as error:
                if is_of_storage(error):
                    raise
                # harmless if the commit was made before the error: then Spark's commit of the same number is skipped
                _log.warning("%s is left to Spark, as deltalake failed: %s", opened.path, first_line(error))
                return None
            keep_written(opened.opened, commit)
        return opened.opened.log.version + 1

    def _is_written(self, net: NetSource, way: WriteWay, commit: CommitProperties) -> bool:
        """False if Spark has to do it: for a row that is not there, or for the size of those that are."""
        is_whole = way.strategy in ("overwrite", "rewrite")
        replaced: tuple[RemoveAction, ...] = ()
        if way.strategy in ("append", "overwrite"):
            rows = new_rows(net)
        else:
            held = self._all_rows() if is_whole else touched_files(self.opened, net, self.limits.in_memory_bytes)
            if held is None:
                return False
            rows, replaced = rewritten(held.rows, net), held.removals
        if rows is None:
            return False
        # a merge makes no more files than it replaces
        files = self._files(rows, len(replaced) if way.strategy == "merge" else pa.cpu_count())
        mode: FilesMode = "overwrite" if is_whole else "append"
        commit_files(self.opened.table, [*files, *replaced], mode, self.opened.table.schema(), commit)
        return True

    def _all_rows(self) -> TouchedFiles | None:
        held = held_rows_within(self.opened.table, self.limits.in_memory_bytes)
        return None if held is None else TouchedFiles(held)

    def _files(self, rows: pa.Table, most: int) -> list[AddAction]:
        """The rows in data files, of which each core writes one if so many are worth it, but no more than ``most``."""
        opened, layout = self.opened, file_layout(rows.schema, *self.opened.in_files(rows.column_names))
        rows = rows.rename_columns(layout.schema.names).cast(layout.schema)
        filesystem, count = table_filesystem(opened.path), max(1, min(most, pa.cpu_count()))
        step = max(self.limits.rows_of_file, -(-rows.num_rows // count))
        pieces = [
            (DataFiles(filesystem, opened.path, layout), rows.slice(first, step))
            for first in range(0, rows.num_rows, step)
        ]

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
        return [action for files, _ in pieces for action in files.actions]


def commit_without_rows_here(opened: OpenedTable, provenance: Provenance) -> bool:
    """A commit that only records its provenance. False if Spark has to make it. Raises OvertakenError and LakeError."""
    commit = numbered_commit(opened.opened, provenance)
    if commit is None or not opened.features <= FEATURES:
        return False
    with commit_errors(opened.path, is_made=partial(is_made, opened.opened, commit)):
        commit_files(opened.table, [], "append", opened.schema, commit)
        keep_written(opened.opened, commit)
    return True
