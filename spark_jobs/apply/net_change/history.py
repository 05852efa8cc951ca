"""Mode ``history``: every committed version of a row, with the commits between which it was valid.

A version that its own transaction replaced was never visible and is left out.
"""

from __future__ import annotations

import numpy as np

from spark_jobs.apply.net_change.moments import Moments
from spark_jobs.apply.net_change.rows import NetRows, outcome_of
from spark_jobs.apply.net_change.timeline import Timeline
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.schema.mode_columns import VALID_FROM, VALID_FROM_LSN, VALID_TO, VALID_TO_LSN
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import TableShape


def history_rows(
    timeline: Timeline, written: TableShape, *, lenient: bool, on_unrepresentable: OnUnrepresentable
) -> NetRows:
    """Upserts are versions that begin. A delete ends the key's open version in the table, and says when it ended.

    ``lenient``: an inserted key may already be in the table, as its delete was not published. Raises as ``net_rows``
    does.
    """
    actions = timeline.actions
    visible = timeline.begun.lsns != timeline.ended.lsns
    versions = np.flatnonzero(actions.is_put & visible)
    ending = _ending(timeline, lenient=lenient)
    rows = np.concatenate([ending, versions])
    begins = np.repeat([False, True], [len(ending), len(versions)])
    outcome = outcome_of(actions, rows, begins, on_unrepresentable)
    outcome.require_no_row_of_before(timeline.truncated[outcome.roots])
    begun, ended = timeline.begun.take(rows), timeline.ended.take(rows)
    never = Moments.never(len(rows))
    since, until = begun.where(begins, never), ended.where(begins, begun)
    columns = NetColumns(written, outcome.unchanged, outcome.old_keys, "history")
    named = {
        **outcome.named,
        VALID_FROM_LSN.net: since.lsn_array,
        VALID_FROM.net: since.time_array,
        VALID_TO_LSN.net: until.lsn_array,
        VALID_TO.net: until.time_array,
    }
    return NetRows.of(columns, named, until.otherwise(since), begins)


def _ending(timeline: Timeline, *, lenient: bool) -> np.ndarray:
    """For each key the action that ends the version that the table held before the range. After a TRUNCATE there is
    none."""
    actions = timeline.actions
    first = actions.first_of_key()
    first = first[first >= 0]
    ends = (~actions.fresh[first] | lenient) & ~timeline.truncated[first]
    return np.sort(first[ends])
