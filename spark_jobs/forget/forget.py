"""``postgres-cdc forget``: the right to erasure. Everything that the lake has of single rows, which the source has no
longer, is removed from the storage at once: their changes in the change log, and the rows in the table, of every
version. It may be repeated after any crash, and is done when it ends without an error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import no_change_log
from spark_jobs.change_log.retention import remove_changes
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError
from spark_jobs.forget.forget_records import forget_records
from spark_jobs.forget.forget_rows import RowsForgotten, TableToErase, forget_rows
from spark_jobs.forget.logged_traces import LoggedTraces, logged_traces
from spark_jobs.forget.row_keys import refuse_if_at_source, row_keys
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.at_source import all_followed_names, resolved
from spark_jobs.tables.followed_tables import require_followed
from spark_jobs.tables.ledger import Ledger


@dataclass(frozen=True)
class ForgetReport:
    """What was removed of ``keys`` rows of the source table ``name``: ``changes`` of them from the change log, and what
    the lake's ``tables`` of it had."""

    name: QualifiedName
    keys: int
    changes: int
    tables: tuple[RowsForgotten, ...]
    seconds: float


def forget(
    pipeline: Pipeline,
    spark: SparkProvider,
    name: QualifiedName,
    keys: Sequence[str],
    *,
    progress: Progress = silent,
) -> ForgetReport:
    """Remove the rows of the table with these ``keys``, at least one, each in the form of ``row_keys.pairs_of``. If the
    lake has several tables of its source table, one for each mode, from all of them.

    They are brought up to date first. Raises PreconditionError, before anything is removed, if the source has one
    of the rows, or if one had another key at a time that is not among ``keys``; and CdcError for whatever else stops
    it.
    """
    began = time.monotonic()
    pipeline = resolved(pipeline)
    require_followed([name], all_followed_names(pipeline))
    relation = pipeline.relation(name)
    names = sorted(table.name for table in pipeline.tables_of(relation))
    with (
        connected(pipeline.source.dsn) as source,
        Run(pipeline, spark, progress=progress).guarded() as run,
    ):
        keys_of_rows = row_keys(source, pipeline, relation, keys)
        refuse_if_at_source(source, keys_of_rows)
        # all changes of the rows, their deletion included, are in the WAL before this point
        last = _brought_up(run, names, source)
        with ExitStack() as locks:
            for each in names:
                locks.enter_context(run.guard.table(each))
            refuse_if_at_source(source, keys_of_rows)  # a row that was inserted meanwhile may be in the table already
            to_erase = [TableToErase(run, each, keys_of_rows, last) for each in names]
            states = [each.state() for each in to_erase]
            traces = logged_traces(pipeline.lake, keys_of_rows, last.ordinal)
            progress(Step("forget", "change log", 0, 1 + len(names), "parts"))
            _forget_changes(run, source, traces)
            forget_records(pipeline.lake, keys_of_rows, states, last.identity)
            tables: list[RowsForgotten] = []
            for work in to_erase:
                progress(Step("forget", str(work.name), 1 + len(tables), 1 + len(names), "parts"))
                tables.append(forget_rows(work))
    return ForgetReport(relation, len(keys_of_rows.texts), traces.count, tuple(tables), time.monotonic() - began)


def _brought_up(run: Run, names: Sequence[QualifiedName], source: Connection) -> WindowMarker:
    """A window whose end the tables show after this, and that ends after what is flushed now. All tables are brought
    there, so that a cut shows it."""
    log, upto = run.log, flushed_lsn(source)
    while not capture(run.pipeline, upto=upto, progress=run.progress).caught_up:
        apply(run)
    last = log.checkpoint()  # nothing is known of the windows that another process lands after it
    if last is None:
        raise no_change_log(log.path)
    for table in apply(run).tables:
        if table.name in names and table.error is not None:
            raise table.error
    ledger = Ledger.required(run.pipeline.lake)
    for name in names:
        shown = ledger.state_of(name)
        if shown is None or shown.ordinal < last.ordinal:
            raise LakeError(f"{name} does not show {last.window.hi}", hint="`postgres-cdc sync` says why")
    return last


def _forget_changes(run: Run, source: Connection, traces: LoggedTraces) -> None:
    """No other process has files of the log half written meanwhile."""
    log = run.log
    with slot_lock(source, run.pipeline.source.slot), run.guard.log():
        remove_changes(log, traces.among, traces.relids)
