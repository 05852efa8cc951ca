"""``{lake.path}/tables/_messages``: what applications wrote into the WAL with ``pg_logical_emit_message``.

One row per message, appended in commit order and never changed: the outbox of a service, an audit trail, a marker in
the stream of changes. ``MESSAGES_SCHEMA`` describes the columns. ``ORDER BY window, commit_lsn_number, ordinal`` gives
the order in which they happened, also relative to changes of tables: a message comes after the changes that its
transaction made before it.

The rows are written from the change log, without Spark, exactly once: each commit carries an application transaction
whose version is the ordinal of the last window that it covers
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers). A window without messages costs
nothing. The prefixes of ``source.messages`` are applied here: the log keeps every message, and a changed filter takes
effect with the next window. Messages are not part of any table's state: snapshots neither contain nor remove them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa

from spark_jobs.apply.plan import Plan
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.window_marker import first_missing
from spark_jobs.configuration import MessagePrefixes, Pipeline
from spark_jobs.decode.message_columns import (
    LOG_COLUMNS,
    MESSAGES_SCHEMA,
    DamagedMessageError,
    has_prefix,
    message_columns,
)
from spark_jobs.delta.append import append
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.data_files import Layout
from spark_jobs.delta.table import commit_errors, table_errors
from spark_jobs.delta.written_tables import commit_properties, is_made, keep_written, open_to_write
from spark_jobs.errors import CdcError, GapError, LakeError
from spark_jobs.lake.messages_state import MESSAGES_NAME, app_id, created, refuse_schema_in_the_folder
from spark_jobs.retries import again_when_overtaken
from spark_jobs.run import Run

MESSAGES_LAYOUT = Layout(MESSAGES_SCHEMA, statistics=("window", "commit_lsn_number", "ordinal"), unique=("content",))


def apply_messages(run: Run, plan: Plan) -> TableApplied:
    """Append the messages of those of the plan's windows that the table lacks. Creates the table if it is missing.

    A failure is returned as the result's ``error``. At a damaged message, the windows before it are still written.
    """
    state, last = plan.ledger.states.get(MESSAGES_NAME), plan.last
    try:
        if error := plan.ledger.errors.get(MESSAGES_NAME):
            raise error
        refuse_schema_in_the_folder(run.pipeline.lake, plan.followed)
        if state is None:
            state = created(run.pipeline.lake, plan.ahead[0] if plan.ahead else last)
        ahead = tuple(marker for marker in plan.ahead if marker.ordinal > state.ordinal)
        if not ahead:
            return TableApplied.without_commit(MESSAGES_NAME, last, "already applied", state=state)
        if (missing := first_missing(state.ordinal, ahead)) is not None:
            raise GapError(
                f"the messages table is at window {state.ordinal}, and the change log does not hold window {missing}",
                hint=f"move {run.pipeline.lake.messages} away: the table is re-created from what the change log holds",
            )
        return _written(TableRange(run, state, ahead))
    except CdcError as error:
        return TableApplied.without_commit(MESSAGES_NAME, last, state=state, error=error)


@again_when_overtaken
def _written(work: TableRange) -> TableApplied:
    """Write the range in one commit; if it holds a damaged message, write the windows before that message."""
    result = TableApplied.nothing_of(work)
    ordinals = [marker.ordinal for marker in work.markers if marker.logical_messages]
    if not ordinals:
        return result
    messages = _Messages(work.run, ordinals)
    try:
        first = next(iter(messages), None)
        if first is None:  # no message has a wanted prefix
            return result
        version = _append(work, chain([first], messages))
    except DamagedMessageError as error:
        before = tuple(marker for marker in work.markers if marker.ordinal < error.window)
        written = _written(replace(work, markers=before)) if before else result
        return replace(written, outcome="stopped", error=written.error or error)
    since = replace(work.state, ordinal=work.last.ordinal, version=version, commits=work.last.ordinal)
    return replace(result, outcome="applied", rows_written=messages.count, delta_version=version, state=since)


class _Messages:
    """The batches to append. ``count`` is the number of rows yielded so far."""

    def __init__(self, run: Run, ordinals: Sequence[int]) -> None:
        self.count = 0
        self._prefixes = _prefixes(run.pipeline)
        self._batches = self._read(run, ordinals)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def _read(self, run: Run, ordinals: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for rows in run.log.logical_messages(ordinals, LOG_COLUMNS):
            messages = message_columns(rows)
            if self._prefixes is not None:
                messages = messages.filter(has_prefix(messages.column("prefix"), self._prefixes))
            if messages.num_rows:
                self.count += messages.num_rows
                yield messages


def _prefixes(pipeline: Pipeline) -> tuple[str, ...] | None:
    """The prefixes of ``source.messages``; None means all messages."""
    messages = pipeline.source.messages
    return messages.prefixes if isinstance(messages, MessagePrefixes) else None


def _append(work: TableRange, batches: Iterable[pa.RecordBatch]) -> int:
    """Commit the windows' messages. Returns the Delta version. Raises LakeError, and whatever ``batches`` raises."""
    path = work.pipeline.lake.messages
    overtaken = LakeError(
        f"messages of {work.windows} were not written to {path}: another process writes this table",
        hint="run it again: it continues from there",
    )
    opened = open_to_write(path, path)
    if opened is None:
        raise overtaken
    with table_errors(f"{path} cannot be read"):
        number = opened.log.transaction_version(app_id(work.identity))
    if number != work.state.commits:
        raise overtaken
    first, last = work.first.ordinal, work.last.ordinal
    transaction = Transaction(app_id(work.identity), last)
    commit = commit_properties(transaction, first_window=str(first), last_window=str(last))
    with commit_errors(path, overtaken, is_made=partial(is_made, opened, commit)):
        # through the handle that was checked above: a commit of this application in between makes the append fail
        append(opened.table, path, batches, MESSAGES_LAYOUT, commit)
    with table_errors(f"{path} cannot be read"):
        opened.table.update_incremental()
        version = int(opened.table.version())
        keep_written(opened, commit)
    return version
