"""``postgres-cdc forget``: the right to erasure. Everything that the lake has of single rows, which the source has no
longer, is removed from the storage at once: their changes in the change log, and the rows in the table, of every
version. It may be repeated after any crash, and is done when it ends without an error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog, no_change_log
from spark_jobs.change_log.retention import remove_changes
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError
from spark_jobs.forget.forget_rows import forget_rows, require_fit
from spark_jobs.forget.logged_traces import LoggedTraces, logged_traces
from spark_jobs.forget.row_keys import refuse_if_there, row_keys
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.postgres.slot import flushed_lsn
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.followed_tables import all_followed_names, require_followed
from spark_jobs.tables.ledger import Ledger
from spark_jobs.tables.matching_tables import resolved


@dataclass(frozen=True)
class ForgetReport:
    """What was removed of ``keys`` rows of the table: ``changes`` of them from the change log; ``rows`` from the newest
    version of the table, which in modes that keep the past may be several of each; and ``files`` of it from the
    storage. No Delta version before ``delta_version`` can be read any more."""

    name: QualifiedName
    keys: int
    changes: int
    rows: int
    files: int
    delta_version: int
    seconds: float


def forget(
    pipeline: Pipeline,
    spark: SparkProvider,
    name: QualifiedName,
    keys: Sequence[str],
    *,
    run_id: str = "",
    progress: Progress = silent,
) -> ForgetReport:
    """Remove the rows of the table with these ``keys``, at least one, each in the form of ``row_keys.pairs_of``.

    The table is brought up to date first. Raises PreconditionError, before anything is removed, if the source has one
    of the rows, or if one had another key at a time that is not among ``keys``; and CdcError for whatever else stops
    it.
    """
    began = time.monotonic()
    pipeline = resolved(pipeline)
    require_followed([name], all_followed_names(pipeline))
    with (
        connected(pipeline.source.dsn) as source,
        Run(pipeline, spark, run_id=run_id, progress=progress).guarded() as run,
    ):
        wanted = row_keys(source, pipeline, name, keys)
        refuse_if_there(source, wanted)
        # what happened to the rows before they were gone is in WAL before this point
        last = _brought_up(run, name, source)
        with run.guard.table(name):
            refuse_if_there(source, wanted)  # a row that came meanwhile may be in the table by now
            require_fit(run, wanted, last)
            found = logged_traces(pipeline.lake, wanted, last.ordinal)
            progress(Step("forget", "change log", 0, 2, "parts"))
            _forget_changes(run, source, found)
            progress(Step("forget", str(name), 1, 2, "parts"))
            gone = forget_rows(run, wanted, last)
    seconds = time.monotonic() - began
    return ForgetReport(name, len(wanted.texts), found.count, gone.rows, gone.files, gone.version, seconds)


def _brought_up(run: Run, name: QualifiedName, source: Connection) -> WindowMarker:
    """A window whose end the table shows after this, and that ends after what is flushed now. All tables are brought
    there, so that a cut shows it."""
    log, upto = ChangeLog(run.pipeline.lake.change_log), flushed_lsn(source)
    while not capture(run.pipeline, upto=upto, progress=run.progress).caught_up:
        apply(run)
    last = log.checkpoint()  # of the windows that another process lands from here on nothing is known
    if last is None:
        raise no_change_log(log.path)
    for table in apply(run).tables:
        if table.name == name and table.error is not None:
            raise table.error
    shown = Ledger.required(run.pipeline.lake).state_of(name)
    if shown is None or shown.ordinal < last.ordinal:
        raise LakeError(f"{name} does not show {last.window.hi}", hint="`postgres-cdc sync` says why")
    return last


def _forget_changes(run: Run, source: Connection, found: LoggedTraces) -> None:
    """No other process has files of the log half written meanwhile."""
    log = ChangeLog(run.pipeline.lake.change_log)
    with slot_lock(source, run.pipeline.source.slot), run.guard.log():
        remove_changes(log, found.among, found.relids)
