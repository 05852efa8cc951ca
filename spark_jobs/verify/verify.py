"""Checks that source and lake are equal at one LSN while both keep changing: the comparison that users run.

It exports a snapshot of the source, which fixes an LSN, and brings the lake's tables to exactly that LSN through the
slot, like any other change. Then it compares each table with the snapshot, which it reads with the reader and decoder
of snapshots. Later writes do not matter: of each Delta table it reads the version that shows the LSN. So a difference
means that a row was lost, duplicated or altered on its way, or in the lake.

It cannot see a value that the decoder misreads in snapshots and changes alike. The tests' own comparison can: it reads
the source through other code.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import ceil

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import (
    CdcError,
    ConfigurationError,
    LakeInUseError,
    NeedsSnapshotError,
    OvertakenError,
    SnapshotWaitsError,
)
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.table_state import TableState, table_states
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.postgres.bulk_read import bulk_connections
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, conninfo
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.published_tables import published_tables
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_lost
from spark_jobs.run import Run
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.differing_columns import SAME_COLUMNS
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.snapshot.export import CtidRange, ctid_ranges
from spark_jobs.snapshot.exporter import BRIEF, exported_snapshot
from spark_jobs.snapshot.table_read import TableRead
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.tables.at_source import AtSource, all_followed_names, resolved
from spark_jobs.tables.followed_tables import require_followed
from spark_jobs.tables.stopped_tables import stopped_tables
from spark_jobs.verify.compare_table import Thoroughness, Verification, compare_table
from spark_jobs.verify.table_verified import TableVerified, VerifyReport

_TABLES_AT_ONCE = 2
# another process may land a window across the LSN, bring a table past it, or be writing it: then another LSN is tried
_TRANSIENT = (OvertakenError, LakeInUseError)
_ATTEMPTS = 3
# a sample consists of ranges of this many bytes of heap
_SAMPLE_BYTES = 1 << 20


def verify(
    pipeline: Pipeline,
    spark: SparkProvider,
    names: Sequence[QualifiedName] | None = None,
    *,
    how: Thoroughness | None = None,
    run_id: str = "",
    progress: Progress = silent,
) -> VerifyReport:
    """Compare ``names`` (default: all followed tables except those in mode ``append``) with the source at its present
    LSN, while the source may be written to. Of a table that keeps earlier data, the current rows are compared.

    Captures and applies like ``sync``, but takes no snapshots: a table that is stopped, or has none yet, is reported as
    not compared. Raises ConfigurationError for a name that is not followed, and CdcError for what stops all of them.
    """
    run = Run(resolved(pipeline), spark, run_id=run_id, progress=progress)
    started = time.monotonic()
    table_names = _followed(run.pipeline, names)
    if _is_far_behind(run):  # catch up before the snapshot is exported, which holds back VACUUM
        _bring_to(run, table_names, None)
    done: dict[QualifiedName, TableVerified] = {}
    left = table_names
    for _ in range(_ATTEMPTS):
        try:
            compared = _at_one_lsn(run, left, how)
        except SnapshotWaitsError as error:
            compared = tuple(TableVerified.not_compared(name, Lsn(0), error) for name in left)
        done |= {table.name: table for table in compared}
        left = tuple(name for name in table_names if isinstance(done[name].error, _TRANSIENT))
        if not left:
            break
    return VerifyReport(tuple(done[name] for name in table_names), time.monotonic() - started)


def _followed(pipeline: Pipeline, names: Sequence[QualifiedName] | None) -> tuple[QualifiedName, ...]:
    followed = all_followed_names(pipeline)
    require_followed(names or (), followed)
    of_changes = [name for name in followed if holds_changes(pipeline.table(name).mode)]
    if append_names := [str(name) for name in names or () if name in of_changes]:
        raise ConfigurationError(
            f"kept in mode append, which holds changes and no rows to compare: {', '.join(append_names)}",
            hint="leave them out: name the others with --table",
        )
    return tuple(name for name in dict.fromkeys(followed if names is None else names) if name not in of_changes)


@again_when_lost
def _is_far_behind(run: Run) -> bool:
    """Whether the tables lack more WAL than one window may span."""
    cut = latest_cut(run.pipeline.lake)
    with run.source() as connection:
        return cut is None or flushed_lsn(connection) - cut.lsn > run.pipeline.windows.max_bytes


def _bring_to(
    run: Run, names: tuple[QualifiedName, ...], upto: Lsn | None
) -> tuple[WindowMarker | None, Mapping[QualifiedName, CdcError]]:
    """Capture and apply up to ``upto``, or to what is flushed now. Returns the window that ends at ``upto``, or None if
    another process has landed a window across it; and the errors of tables that stopped before it."""
    pipeline = run.pipeline
    subset = None if set(names) == set(all_followed_names(pipeline)) else names  # only applying all tables writes a cut
    while True:
        captured = capture(pipeline, upto=upto, progress=run.progress)
        report = apply(run, subset, upto=upto)
        if captured.caught_up:
            break
    last = captured.landed[-1] if captured.landed else run.log.checkpoint()
    ends_at_it = last is not None and last.window.hi == upto
    return last if ends_at_it else None, {table.name: table.error for table in report.tables if table.error}


def _at_one_lsn(run: Run, names: tuple[QualifiedName, ...], how: Thoroughness | None) -> tuple[TableVerified, ...]:
    dsn = run.pipeline.source.dsn
    with exported_snapshot(dsn, BRIEF, run.progress) as (exported, connection):
        at, stopped = _bring_to(run, names, exported.lsn)
        if at is None:
            crossed = OvertakenError(f"another process landed a window across {exported.lsn}", hint="run it again")
            return tuple(TableVerified.not_compared(name, exported.lsn, crossed) for name in names)
        with bulk_connections(conninfo(dsn)) as connect:
            states = table_states(run.pipeline.lake, names, at.identity)
            differing = {name: state.differing for name, state in states.items() if isinstance(state, TableState)}
            work = Verification(run, connect, exported, at, how or Thoroughness(), differing)
            stopped = {**stopped, **_never_read_again(run.pipeline, connection, stopped)}
            reads = {name: stopped.get(name) or read for name, read in _reads(work, connection, names).items()}
            return _compared(work, reads)


def _never_read_again(
    pipeline: Pipeline, connection: Connection, stopped: Mapping[QualifiedName, CdcError]
) -> dict[QualifiedName, CdcError]:
    """Of the tables that need a snapshot, those of which ``sync`` cannot take one, with the reason that it gives."""
    waiting = [name for name, error in stopped.items() if isinstance(error, NeedsSnapshotError)]
    if not waiting:
        return {}
    return {table.name: table.error for table in stopped_tables(AtSource(connection, pipeline), waiting, ())}


def _reads(
    work: Verification, connection: Connection, names: tuple[QualifiedName, ...]
) -> dict[QualifiedName, TableRead | CdcError]:
    """How each table is read in the snapshot that ``connection`` uses, or why it cannot be read."""
    pipeline, source = work.pipeline, work.pipeline.source
    relations, keys, masks = pipeline.relations(names), pipeline.declared_keys, pipeline.masks
    published = published_tables(connection, source.publications, relations) if source.has_publications else {}
    known = {facts.name: facts for facts in relation_facts(connection, names=relations, keys=keys, masks=masks)}

    def read(name: QualifiedName) -> TableRead | CdcError:
        try:
            relation = pipeline.relation(name)
            facts = known.get(relation)
            if facts:
                facts = with_options(facts, pipeline.column_options(name))
            ranges = _ranges(work, connection, facts) if facts else ()
            ignored = work.differing.get(name, SAME_COLUMNS).ignored_numbers
            sent, mask = published.get(relation), masks.get(relation)
            return TableRead.of(name, facts, ranges, sent, applied="nothing", mask=mask, ignored=ignored)
        except CdcError as error:
            return error

    return {name: read(name) for name in names}


def _ranges(work: Verification, connection: Connection, facts: RelationFacts) -> Sequence[CtidRange]:
    """The whole table, or a sample of it, which differs from LSN to LSN."""
    if work.how.sample is None:
        return ctid_ranges(connection, facts.relid)
    ranges = ctid_ranges(connection, facts.relid, _SAMPLE_BYTES)
    chance = random.Random(int(work.exported.lsn))  # noqa: S311 - not for cryptography
    return chance.sample(ranges, ceil(len(ranges) * work.how.sample))


def _compared(work: Verification, reads: Mapping[QualifiedName, TableRead | CdcError]) -> tuple[TableVerified, ...]:
    done: dict[QualifiedName, TableVerified] = {}
    with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="verify") as pool:
        running = [pool.submit(compare_table, work, name, read) for name, read in reads.items()]
        for future in as_completed(running):
            table = future.result()
            done[table.name] = table
            detail = f"{table.name}, {table.counts.source_rows:,} rows: {table.verdict}"
            work.run.progress(Step("verify", detail, len(done), len(reads), "tables"))
    return tuple(done[name] for name in reads)
