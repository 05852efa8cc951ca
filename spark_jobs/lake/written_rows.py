"""Rows written to a table without Spark, appended or in the place of others: in data files that this process writes, by
one commit of ``deltalake``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties

from spark_jobs.decode.threads import in_threads
from spark_jobs.delta.append import after_commit
from spark_jobs.delta.data_files import DataFiles, row_groups
from spark_jobs.delta.files import table_filesystem
from spark_jobs.lake.file_layout import file_layout
from spark_jobs.lake.held_rows import held_rows
from spark_jobs.lake.opened_table import OpenedTable
from spark_jobs.schema.net_columns import OPERATION, UPSERT, value
from spark_jobs.schema.table_shape import LakeColumn, TableShape

# fewer are not worth a file of their own
_LEAST_ROWS = 50_000


def append_rows(opened: OpenedTable, shape: TableShape, net: pa.Table, commit: CommitProperties) -> int:
    """Append the rows of a net change that only inserts, on the version that was opened: ``commit`` must not be tried
    again on a newer one. Returns the new version, which ``opened`` does not show.

    Many rows are written in several files at once. Raises LakeError, after which no file is left, and whatever
    ``deltalake`` raises at the commit: after an error the commit may have been made, so the files stay.
    """
    return _write(opened, shape.columns, _values(shape, net), "append", commit)


def rewrite_rows(opened: OpenedTable, shape: TableShape, net: pa.Table, commit: CommitProperties) -> int:
    """Write the table anew, with the net change in it, as ``append_rows`` does. All of the table's rows are in memory
    meanwhile."""
    keys = [shape.columns[place].name for place in shape.key_indices]
    changed = [value(place) for place in shape.key_indices]
    held = held_rows(opened.table).select([column.name for column in shape.columns]).cast(_schema(shape.columns))
    stay = held.join(net.select(changed), keys, changed, join_type="left anti")
    come = net.filter(pc.equal(net.column(OPERATION), UPSERT))
    return _write(opened, shape.columns, pa.concat_tables([stay, _values(shape, come)]), "overwrite", commit)


def _values(shape: TableShape, net: pa.Table) -> pa.Table:
    named = net.select([value(place) for place in range(len(shape.columns))])
    return named.rename_columns([column.name for column in shape.columns]).cast(_schema(shape.columns))


def _schema(columns: Sequence[LakeColumn]) -> pa.Schema:
    return pa.schema([(column.name, column.lake_type.arrow) for column in columns])


def _write(
    opened: OpenedTable,
    columns: Sequence[LakeColumn],
    rows: pa.Table,
    mode: Literal["append", "overwrite"],
    commit: CommitProperties,
) -> int:
    layout = file_layout(columns, *opened.in_files(columns))
    rows = rows.rename_columns(layout.schema.names).cast(layout.schema)
    filesystem = table_filesystem(opened.path)
    pieces = [(DataFiles(filesystem, opened.path, layout), piece) for piece in _pieces(rows)]

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
    opened.table.create_write_transaction(
        [action for files, _ in pieces for action in files.actions],
        mode,
        opened.table.schema(),
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    )
    return opened.opened.log.version + 1


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """One for each core."""
    step = max(_LEAST_ROWS, -(-rows.num_rows // pa.cpu_count()))
    return (rows.slice(first, step) for first in range(0, rows.num_rows, step))
