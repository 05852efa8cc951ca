"""Net changes written by the driver's process: data files from Arrow, commits by ``deltalake``. A merge replaces the
files that hold a changed row."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from spark_jobs.decode.threads import in_threads
from spark_jobs.delta.data_files import DataFiles
from spark_jobs.delta.table import commit_errors, is_of_storage
from spark_jobs.delta.written_tables import commit_next, is_made
from spark_jobs.errors import first_line
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.table_commit import Provenance, numbered_commit
from spark_jobs.writers.with_arrow.file_layout import file_layout, written_columns
from spark_jobs.writers.with_arrow.lost_copies import row_change
from spark_jobs.writers.with_arrow.opened_table import OpenedTable
from spark_jobs.writers.with_arrow.rewritten_rows import RowPiece
from spark_jobs.writers.with_arrow.touched_files import TouchedFiles, all_files, touched_files
from spark_jobs.writers.write_choice import WriteWay

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArrowWriter:
    """Writes to a table at the version at which it was opened. See ``TableWriter``.

    The rows of the net change are in memory. Those of touched files for a merge, and the whole table's for a rewrite,
    are read and written row group by row group, by each core. After a LakeError no file is left; after an error at the
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
        return opened.opened.log.version + 1

    def _is_written(self, net: NetSource, way: WriteWay, commit: CommitProperties) -> bool:
        """False if Spark has to do it: for a row that is not there, or for the number of rows that are looked at."""
        change = row_change(net, self.limits.in_memory_bytes)
        old_files = TouchedFiles()
        if way.strategy == "rewrite":
            old_files = all_files(self.opened, change)
        elif way.strategy == "merge":
            old_files = touched_files(self.opened, change, net)
        added = change.added(self.limits.rows_of_file)
        if added is None:
            return False
        pieces = [*(piece.through(change.kept) for piece in old_files.pieces), *added]
        # a merge makes no more files than it replaces
        most = len(old_files.removals) if way.strategy == "merge" else pa.cpu_count()
        written = self._files(pieces, most, net.columns)
        if not change.is_done:
            _remove(written)
            return False
        files = [action for each in written for action in each.actions]
        whole = self.opened.schema if way.strategy in ("overwrite", "rewrite") else None
        commit_next(self.opened.opened, [*files, *old_files.removals], commit, whole)
        return True

    def _files(self, pieces: Sequence[RowPiece], most: int, columns: NetColumns) -> list[DataFiles]:
        """The rows in data files, of which each core writes one if so many are worth it, but no more than ``most``."""
        opened, schema = self.opened, written_columns(columns.shape.columns, columns.mode)
        layout = file_layout(schema, *opened.in_files(schema.names))
        count, rows = max(1, min(most, pa.cpu_count())), sum(piece.rows for piece in pieces)
        step, reached, runs = max(self.limits.rows_of_file, -(-rows // count)), 0, list[list[RowPiece]]()
        for piece in pieces:
            if reached >= step * len(runs):
                runs.append([])
            runs[-1].append(piece)
            reached += piece.rows
        written = [DataFiles(opened.path, layout) for _ in runs]

        def write(files: DataFiles, run: Sequence[RowPiece]) -> None:
            parts = (part for piece in run for part in piece.read())
            files.write_all(batch for part in parts for batch in part.to_batches())

        try:
            in_threads(lambda each: write(*each), zip(written, runs, strict=True))
        except BaseException:
            _remove(written)
            raise
        return written


def _remove(written: Iterable[DataFiles]) -> None:
    for files in written:
        files.remove()
