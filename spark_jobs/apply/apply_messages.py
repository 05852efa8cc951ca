"""``{lake.path}/tables/_messages``: what applications wrote into the WAL with ``pg_logical_emit_message``.

One row per message, appended in commit order and never changed: the outbox of a service, an audit trail, a marker in
the stream of changes. Columns and their meaning: ``MESSAGES_SCHEMA``. ``ORDER BY commit_lsn_number, ordinal`` is the
order in which they happened, among the changes of the tables too: a message stands after the changes that its
transaction made before it.

Written from the change log without Spark, exactly once: each commit carries an application transaction whose version
is the ordinal of the last window that it covers, as the tables' commits do
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#transaction-identifiers). A window without messages costs
nothing. The prefixes of ``source.messages`` choose here; the log keeps every message, and a filter that is changed
holds from the next window on. Messages are no state of a table: no snapshot shows them, and a re-snapshot leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import MessagePrefixes, Pipeline
from spark_jobs.decode.message_columns import (
    LOG_COLUMNS,
    MESSAGES_SCHEMA,
    DamagedMessageError,
    has_prefix,
    message_columns,
)
from spark_jobs.delta.append import Layout, append
from spark_jobs.delta.files import WRITABLE
from spark_jobs.errors import CdcError, GapError, LakeError
from spark_jobs.lake.messages_state import (
    MessagesState,
    app_id,
    created,
    messages_state,
    refuse_schema_in_the_folder,
)
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

_LAYOUT = Layout(MESSAGES_SCHEMA, statistics=("window", "commit_lsn_number", "ordinal"), unique=("content",))

Outcome = Literal["applied", "nothing to apply", "already applied", "stopped"]


@dataclass(frozen=True)
class MessagesApplied:
    """The table brought to the end of window ``last``: windows ``first`` to ``last``, their WAL [``lo``, ``hi``).

    ``delta_version`` is None where no commit was made. ``stopped`` has an ``error``; the windows before the one that
    it names are written. ``state``: the table's since.
    """

    first: int
    last: int
    lo: Lsn
    hi: Lsn
    outcome: Outcome
    rows_written: int = 0
    delta_version: int | None = None
    state: MessagesState | None = None
    error: CdcError | None = None

    def after(self, before: MessagesApplied | None) -> MessagesApplied:
        """This round of one sync added to those before it."""
        if before is None:
            return self
        return replace(
            self,
            first=before.first,
            lo=before.lo,
            outcome=before.outcome if self.outcome == "nothing to apply" else self.outcome,
            rows_written=before.rows_written + self.rows_written,
            delta_version=before.delta_version if self.delta_version is None else self.delta_version,
        )


def apply_messages(
    pipeline: Pipeline,
    followed: Iterable[QualifiedName],
    identity: SlotIdentity,
    markers: Sequence[WindowMarker],
    reached: int | None = None,
) -> MessagesApplied:
    """Append the messages of ``markers``: landed windows in order, none missing; older ones are passed over.

    ``reached``: a window up to which they are known to be done, where the table's own last commit is older.
    What stops it is in the result's ``error``.
    """
    last = markers[-1]
    result = MessagesApplied(last.ordinal, last.ordinal, last.window.hi, last.window.hi, "already applied")
    try:
        refuse_schema_in_the_folder(followed)
        state = messages_state(pipeline, identity) or created(pipeline, identity, markers[0])
        done = max(state.ordinal, -1 if reached is None else reached)
        result = replace(result, state=state)
        ahead = [marker for marker in markers if marker.ordinal > done]
        if not ahead:
            return result
        result = replace(result, first=ahead[0].ordinal, lo=ahead[0].window.lo, outcome="nothing to apply", state=state)
        if ahead[0].ordinal != done + 1:
            raise GapError(
                f"the messages have been brought to window {done}, and the next one landed is {ahead[0].ordinal}",
                hint=f"move {pipeline.lake.messages} away: the table is made anew from what the change log holds",
            )
        return _written(pipeline, identity, ahead, result)
    except CdcError as error:
        return replace(result, outcome="stopped", error=error)


def _written(
    pipeline: Pipeline, identity: SlotIdentity, ahead: Sequence[WindowMarker], result: MessagesApplied
) -> MessagesApplied:
    """One commit; of a range with a damaged message the windows before that one."""
    ordinals = [marker.ordinal for marker in ahead if marker.logical_messages]
    if not ordinals:
        return result
    messages = _Messages(pipeline, ordinals)
    try:
        first = next(iter(messages), None)
        if first is None:  # none with a wanted prefix
            return result
        version = _append(pipeline, identity, ahead, result.state, chain([first], messages))
    except DamagedMessageError as error:
        before = [marker for marker in ahead if marker.ordinal < error.window]
        written = _written(pipeline, identity, before, result) if before else result
        return replace(written, outcome="stopped", error=written.error or error)
    return replace(
        result,
        outcome="applied",
        rows_written=messages.count,
        delta_version=version,
        state=MessagesState(ahead[-1].ordinal, version),
    )


class _Messages:
    """Iterates over the batches that the table gets; ``count`` rows so far."""

    def __init__(self, pipeline: Pipeline, ordinals: Sequence[int]) -> None:
        self.count = 0
        self._prefixes = _prefixes(pipeline)
        self._batches = self._read(pipeline, ordinals)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def _read(self, pipeline: Pipeline, ordinals: Sequence[int]) -> Iterator[pa.RecordBatch]:
        log = ChangeLog(pipeline.lake.change_log)
        for rows in log.logical_messages(ordinals, LOG_COLUMNS):
            columns = message_columns(rows)
            wanted = columns
            if self._prefixes is not None:
                wanted = columns.filter(has_prefix(columns.column("prefix"), self._prefixes))
            if wanted.num_rows:
                self.count += wanted.num_rows
                yield wanted


def _prefixes(pipeline: Pipeline) -> tuple[str, ...] | None:
    """Those of ``source.messages``; None for all."""
    messages = pipeline.source.messages
    return messages.prefixes if isinstance(messages, MessagePrefixes) else None


def _append(
    pipeline: Pipeline,
    identity: SlotIdentity,
    windows: Sequence[WindowMarker],
    before: MessagesState | None,
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Commit the windows' messages; the version. Raises what ``batches`` raises, and LakeError."""
    path = pipeline.lake.messages
    first, last = windows[0], windows[-1]
    overtaken = LakeError(
        f"messages of the windows {first.ordinal} to {last.ordinal} were not written to {path}: another process writes"
        " this table",
        hint="run it again: it goes on from there",
    )
    table = DeltaTable(path)
    if before is None or table.transaction_version(app_id(identity)) != before.ordinal:
        raise overtaken
    commit = CommitProperties(
        custom_metadata={"first_window": str(first.ordinal), "last_window": str(last.ordinal)},
        app_transactions=[Transaction(app_id(identity), last.ordinal)],
    )
    try:
        # the handle that was checked: a commit of this application in between makes it fail
        append(table, path, batches, _LAYOUT, commit)
    except CommitFailedError as error:
        raise overtaken from error
    except DeltaError as error:
        raise LakeError(f"{path} cannot be written: {error}", hint=WRITABLE) from None
    return DeltaTable(path).version()
