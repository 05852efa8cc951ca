"""Tables at one exact LSN: read by executors over ctid ranges of an exported snapshot, each visible in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from spark_jobs.configuration import Pipeline
from spark_jobs.decode.values import OnUnrepresentable
from spark_jobs.errors import CdcError, OvertakenError, PreconditionError
from spark_jobs.lake.delta_table import replace_table, rows_written, with_attribute_numbers
from spark_jobs.lake.merge_sql import named_columns
from spark_jobs.lake.table_commit import Provenance, committed_version, committing_session, overtaking
from spark_jobs.lake.table_state import TableState, generation_of, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import conninfo
from spark_jobs.postgres.fingerprints import Watched, fingerprint_words
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.net_columns import ddl, value, value_fields
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.export import CtidRange, ctid_ranges, exported_snapshot, range_query, snapshot_column
from spark_jobs.snapshot.pace import next_cause
from spark_jobs.snapshot.range_read import RangeQuery, read_range
from spark_jobs.snapshot.values import SnapshotColumn
from spark_jobs.spark.errors import spark_errors
from spark_jobs.write_guard import WriteGuard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RANGE_BYTES = 64 << 20  # each task costs 0.3 s of a core and writes a file: a quarter of it took 1.3 times as long
_TASKS = 16  # for a table of up to 16 ranges one task each; then tasks grow
_RANGES_PER_TASK = 4  # 256 MB of heap: what a retry reads again
_TABLES_AT_ONCE = 2
_ATTEMPTS = 5  # each costs another writer a commit


@dataclass(frozen=True)
class TableSnapshot:
    """One table's snapshot: its state since, the rows it holds; or the ``error`` that left the old table untouched.

    ``reason``: why it was taken by itself, empty where it was asked for or was the first.
    """

    name: QualifiedName
    lsn: Lsn
    relid: int = 0
    rows: int = 0
    state: TableState | None = None
    error: CdcError | None = None
    reason: str = ""


@dataclass(frozen=True)
class _Plan:
    """How one table is read: per task the queries that it runs one after the other."""

    columns: tuple[SnapshotColumn, ...]
    shape: TableShape
    tasks: tuple[tuple[RangeQuery, ...], ...]


def snapshot_tables(
    spark: SparkSession,
    pipeline: Pipeline,
    names: Sequence[QualifiedName],
    *,
    system_identifier: int,
    ordinal_at: Callable[[Lsn], int],
    watched: Watched,
    guard: WriteGuard,
    stored: bool = False,
    reasons: Mapping[QualifiedName, str] | None = None,
    run_id: str = "",
    progress: Progress = silent,
) -> tuple[TableSnapshot, ...]:
    """Replace the Delta tables of ``names``, or create them, all at one LSN; each begins a new generation.

    ``ordinal_at`` gives the ordinal of the last landed window that ends at or before an LSN: applying goes on with the
    next one. ``watched`` says what the tables' fingerprints are made of. ``guard`` keeps other processes from a table
    while it is written. ``stored``: with stored generated columns. ``reasons``: of those that are taken by themselves,
    because of a change that is not followed in place. A table that fails is reported with its error, and keeps
    what it held; the others are done.
    Raises SourceError and its children when no snapshot can be exported.
    """
    if not names:
        return ()
    with exported_snapshot(pipeline.source.dsn) as (exported, connection):
        ordinal = ordinal_at(exported.lsn)
        source = conninfo(pipeline.source.dsn)
        done: dict[QualifiedName, TableSnapshot] = {}

        def one(name: QualifiedName, facts: RelationFacts | None, ranges: tuple[CtidRange, ...]) -> TableSnapshot:
            try:
                plan = _plan(name, facts, ranges, stored)
                read = _range_reader(source, exported.snapshot_name, plan, pipeline.on_unrepresentable)
                generation = generation_of(exported.lsn, words[name][1] if name in words else "")
                provenance = Provenance(
                    system_identifier,
                    pipeline.source.slot,
                    generation,
                    snapshot_lsn=exported.lsn,
                    first=ordinal,
                    last=ordinal,
                    lo=exported.lsn,
                    hi=exported.lsn,
                    relid=plan.shape.relid,
                    commits=0,
                    run_id=run_id,
                )
                for attempt in Retrying(
                    retry=retry_if_exception_type(OvertakenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True
                ):
                    with attempt, guard.table(name):
                        taken = _snapshot_table(spark, pipeline, plan, read, provenance, (reasons or {}).get(name, ""))
                return taken
            except CdcError as error:
                return TableSnapshot(name, exported.lsn, facts.relid if facts else 0, error=error)

        words = fingerprint_words(connection, watched)
        found = {facts.name: facts for facts in relation_facts(connection, names=names)}
        ranges = {name: ctid_ranges(connection, facts.relid, _RANGE_BYTES) for name, facts in found.items()}
        with ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="snapshot") as pool:
            running = [pool.submit(one, name, found.get(name), ranges.get(name, ())) for name in names]
            for future in as_completed(running):
                table = future.result()
                done[table.name] = table
                progress(Step("snapshot", f"{table.name}, {table.rows:,} rows", len(done), len(names), "tables"))
    return tuple(done[name] for name in names)


def _plan(name: QualifiedName, facts: RelationFacts | None, ranges: tuple[CtidRange, ...], stored: bool) -> _Plan:
    if facts is None:
        raise PreconditionError(f"{name} is not in the database", hint="correct tables: in the configuration")
    shape = TableShape.of(facts, stored=stored)
    by_name = {column.attname: column for column in facts.columns}
    columns = tuple(snapshot_column(by_name[column.name]) for column in shape.columns)
    queries = [range_query(facts, part, [column.name for column in columns]) for part in ranges]
    step = min(_RANGES_PER_TASK, max(1, len(queries) // _TASKS))
    return _Plan(columns, shape, tuple(tuple(queries[at : at + step]) for at in range(0, len(queries), step)))


def _snapshot_table(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: _Plan,
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    provenance: Provenance,
    reason: str,
) -> TableSnapshot:
    """Raises OvertakenError when another writer of ours commits in between."""
    name, path = plan.shape.name, pipeline.lake.table(plan.shape.name)
    before = table_state(pipeline.lake, name, provenance.system_identifier, provenance.slot)
    cause = next_cause(before.cause if before else None, reason) if reason else None
    provenance = replace(provenance, commits=before.commits + 1 if before else 1, cause=cause)
    schema = ddl(value_fields(plan.shape))
    with (
        spark_errors(f"{name}: snapshot at {provenance.snapshot_lsn} failed"),
        overtaking(path, by_any=True),
        committing_session(spark, provenance) as own,
    ):
        tasks = own.range(0, len(plan.tasks), 1, len(plan.tasks))
        rows_read = tasks.mapInArrow(read, schema).selectExpr(*named_columns(plan.shape.columns))
        replace_table(with_attribute_numbers(rows_read, plan.shape.columns), path)
        committed_version(own, path)
        rows = rows_written(own, path)
    state = table_state(pipeline.lake, name, provenance.system_identifier, provenance.slot)
    return TableSnapshot(name, provenance.snapshot_lsn, plan.shape.relid, rows, state, reason=reason)


def _range_reader(
    source: str, snapshot_name: str, plan: _Plan, on_unrepresentable: OnUnrepresentable
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: task numbers in, rows out. The connection string travels in its closure only,
    which no plan, log or web page shows."""
    tasks, columns, table = plan.tasks, plan.columns, str(plan.shape.name)

    def read_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for query in tasks[task]:
                    for rows in read_range(source, snapshot_name, query):
                        yield _typed(rows, columns, table, on_unrepresentable)

    return read_ranges


def _typed(
    rows: pa.RecordBatch, columns: tuple[SnapshotColumn, ...], table: str, on_unrepresentable: OnUnrepresentable
) -> pa.RecordBatch:
    arrays = [
        column.values(rows.column(i), table=table, on_unrepresentable=on_unrepresentable)
        for i, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, [value(i) for i in range(len(columns))])
