"""Rows appended to a table without Spark: in data files that this process writes, by one commit of ``deltalake``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties

from spark_jobs.decode.threads import in_threads
from spark_jobs.delta.append import after_commit
from spark_jobs.delta.data_files import DataFiles, row_groups
from spark_jobs.delta.files import table_filesystem
from spark_jobs.lake.file_layout import file_layout
from spark_jobs.lake.opened_table import OpenedTable
from spark_jobs.schema.table_shape import LakeColumn

# fewer are not worth a file of their own
_LEAST_ROWS = 50_000


def append_rows(opened: OpenedTable, columns: Sequence[LakeColumn], rows: pa.Table, commit: CommitProperties) -> int:
    """Append ``rows``, which have the values of ``columns`` in this order, on the version that was opened: ``commit``
    must not be tried again on a newer one. Returns the new version, which ``opened`` does not show.

    Many rows are written in several files at once. Raises LakeError, after which no file is left, and whatever
    ``deltalake`` raises at the commit: after an error the commit may have been made, so the files stay.
    """
    layout = file_layout(columns, *opened.in_files(columns))
    rows = rows.rename_columns(layout.schema.names).cast(layout.schema)
    filesystem = table_filesystem(opened.path)
    step = max(_LEAST_ROWS, -(-rows.num_rows // pa.cpu_count()))
    pieces = [(DataFiles(filesystem, opened.path, layout), first) for first in range(0, rows.num_rows, step)]

    def write(piece: tuple[DataFiles, int]) -> None:
        files, first = piece
        for group in row_groups(rows.slice(first, step).to_batches()):
            files.write(pa.Table.from_batches(group))
        files.close()

    try:
        in_threads(write, pieces)
    except BaseException:
        for files, _ in pieces:
            files.remove()
        raise
    opened.table.create_write_transaction(
        [action for files, _ in pieces for action in files.actions],
        "append",
        opened.table.schema(),
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    )
    return opened.opened.log.version + 1
