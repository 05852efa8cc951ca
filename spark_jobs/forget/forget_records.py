"""Removes from ``_unrepresentable`` the records of values of rows that are to be forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.upkeep import Chosen, RowsToRemove, remove_rows
from spark_jobs.forget.row_keys import RowKeys
from spark_jobs.lake.table_state import TableState, records_of
from spark_jobs.lake.unrepresentable import records_table
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.schema.misfits import key_text


def of_rows(names: Iterable[QualifiedName], keys: RowKeys) -> Chosen:
    """Chooses the records of these rows, in the lake's tables ``names``. A record has the names that the key's columns
    had when it was made, so only the values are compared."""
    tables = pa.array([str(name) for name in names])
    values = {_values(key_text(row)) for row in keys.values(keys.in_lake).to_pylist()}

    def chosen(rows: pa.RecordBatch) -> pa.Array:
        texts = pc.if_else(pc.is_in(rows.column("table"), tables), rows.column("key"), None)
        return pa.array([text is not None and _values(text) in values for text in texts.to_pylist()], pa.bool_())

    return chosen


def _values(key: str) -> tuple[str | None, ...]:
    return tuple(json.loads(key).values())


@again_when_overtaken
def forget_records(lake: Lake, keys: RowKeys, states: Sequence[TableState], identity: SlotIdentity) -> None:
    """Remove those of the tables in ``states``, whose locks the caller has: nobody else writes records of them. See
    ``remove_rows``. Raises CdcError."""
    if (table := records_table(lake)) is None:
        return
    for state in states:  # what a killed process has left may hold records of other rows
        records_of(lake, state, identity).add(state.unrepresentable.file)
    chosen = of_rows([state.name for state in states], keys)
    remove_rows(table, RowsToRemove(chosen, lambda _: True, chosen))
