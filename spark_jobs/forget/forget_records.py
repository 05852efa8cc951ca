"""Removes from ``_unrepresentable`` the records of values of rows that are to be forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.upkeep import Chosen
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.forget.row_keys import RowKeys
from spark_jobs.lake.table_state import TableState, records_of
from spark_jobs.lake.unrepresentable import UNREPRESENTABLE_SCHEMA
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.schema.misfits import key_text
from spark_jobs.writers.held_rows import rows_of_file
from spark_jobs.writers.plain_table import plain_table, without_rows


def of_rows(names: Iterable[QualifiedName], keys: RowKeys) -> Chosen:
    """Chooses the records of these rows, in the lake's tables ``names``."""
    tables = pa.array([str(name) for name in names])
    wanted = pa.array([key_text(row) for row in keys.values(keys.in_lake).to_pylist()])
    return lambda rows: pc.and_(pc.is_in(rows.column("table"), tables), pc.is_in(rows.column("key"), wanted))


@again_when_overtaken
def forget_records(lake: Lake, keys: RowKeys, states: Sequence[TableState], identity: SlotIdentity) -> None:
    """Remove those of the tables in ``states``, whose locks the caller has: nobody else writes records of them. No file
    has them afterwards, so versions of ``_unrepresentable`` from before may not be readable. Raises CdcError."""
    path, chosen = lake.unrepresentable, of_rows([state.name for state in states], keys)
    with table_errors(f"{path} cannot be written"):
        table = plain_table(path)
        if table is None:
            return
        for state in states:  # what a killed process has left may hold records of other rows
            records_of(lake, state, identity).add(state.unrepresentable.file)
        without_rows(table.newest(), ("table", "key"), chosen)
        newest = ListedTable.read(path)
        holding = [
            file.name
            for file in (newest.strays if newest is not None else ())
            if any(
                pc.any(chosen(rows)).as_py()
                for rows in rows_of_file(path, file.name, file.size, UNREPRESENTABLE_SCHEMA)
            )
        ]
        if holding:
            delete_files(path, holding)
