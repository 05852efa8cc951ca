"""The net change of a table whose mode keeps the past of each row."""

from __future__ import annotations

from spark_jobs.apply.net_change.history import history_rows
from spark_jobs.apply.net_change.rows import NetRows
from spark_jobs.apply.net_change.soft_delete import soft_delete_rows
from spark_jobs.apply.net_change.timeline import Timeline
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.table_mode import Mode


def rows_that_keep_past(
    mode: Mode, timeline: Timeline, *, lenient: bool, on_unrepresentable: OnUnrepresentable
) -> NetRows:
    """``lenient``: an inserted key may already be in the table. Raises as ``net_change`` does."""
    if mode == "history":
        return history_rows(timeline, lenient=lenient, on_unrepresentable=on_unrepresentable)
    return soft_delete_rows(timeline, on_unrepresentable=on_unrepresentable)
