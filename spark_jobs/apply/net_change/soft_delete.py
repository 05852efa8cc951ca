"""Mode ``soft_delete``: one row per key, with its last values and, if it was deleted, the time of the delete."""

from __future__ import annotations

import numpy as np

from spark_jobs.apply.net_change.rows import NetRows, outcome_of
from spark_jobs.apply.net_change.timeline import Timeline
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.schema.mode_columns import DELETED_AT
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import TableShape


def soft_delete_rows(timeline: Timeline, written: TableShape, *, on_unrepresentable: OnUnrepresentable) -> NetRows:
    """A key that was inserted and deleted in the range leaves its last values too. A key that was only deleted has no
    values: the table keeps its own. Raises as ``net_rows`` does."""
    actions = timeline.actions
    rows = np.sort(_chosen(timeline))
    is_put = actions.is_put[rows]
    outcome = outcome_of(actions, rows, is_put, on_unrepresentable)
    outcome.require_no_row_of_before(timeline.truncated[outcome.roots])
    begun = timeline.begun.take(rows)
    deleted = timeline.ended.take(rows).where(is_put, begun)
    columns = NetColumns(written, outcome.unchanged, outcome.old_keys, "soft_delete")
    named = {**outcome.named, DELETED_AT.net: deleted.time_array}
    return NetRows.of(columns, named, deleted.otherwise(begun), np.zeros(len(rows), dtype=bool))


def _chosen(timeline: Timeline) -> np.ndarray:
    """For each key its last put; if it has none, its first delete."""
    actions = timeline.actions
    chosen = actions.first_of_key()
    puts = np.flatnonzero(actions.is_put)
    chosen[actions.codes[puts]] = puts  # NumPy assigns in order: the last one wins
    return chosen[chosen >= 0]
