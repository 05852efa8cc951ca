"""Mode ``history``: every version of a row that a commit left, with the commits between which it was valid.

What a transaction made and replaced itself was never to be seen, and is no version.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.apply.net_change.rows import NetRows, outcome_of
from spark_jobs.apply.net_change.timeline import Commits, Timeline
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.schema.mode_columns import VALID_FROM, VALID_FROM_LSN, VALID_TO, VALID_TO_LSN
from spark_jobs.schema.net_columns import NetColumns


def history_rows(timeline: Timeline, *, lenient: bool, on_unrepresentable: OnUnrepresentable) -> NetRows:
    """Upserts are versions that begin. A delete ends the version that the table holds open of that key, and says when.

    ``lenient``: an insert may find its key there, as its delete was not published. Raises as ``net_rows`` does.
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
    never = Commits.never(len(rows))
    since, until = begun.where(begins, never), ended.where(begins, begun)
    columns = NetColumns(actions.ordered.shape, outcome.unchanged, outcome.old_keys, "history")
    named = {
        **outcome.named,
        VALID_FROM_LSN.net: since.lsn_array,
        VALID_FROM.net: since.time_array,
        VALID_TO_LSN.net: until.lsn_array,
        VALID_TO.net: until.time_array,
    }
    return NetRows(columns, pa.table(named), begins)


def _ending(timeline: Timeline, *, lenient: bool) -> np.ndarray:
    """Per key the action that ends what the table held of it before the range. Behind a TRUNCATE nothing is left."""
    actions = timeline.actions
    first = actions.first_of_key()
    first = first[first >= 0]
    found = (~actions.fresh[first] | lenient) & ~timeline.truncated[first]
    return np.sort(first[found])
