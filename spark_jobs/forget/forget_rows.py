"""Removes rows from one Delta table, and with them every file and every version that may hold them.

Each step may be repeated. First the rows are deleted. Then a commit changes the table's metadata: Delta refuses every
commit that was begun before one of those, so what lies in the folder now and is no part of the table never will be. A
numbered commit records how far the table is, and a checkpoint of it takes the place of all earlier commits, whose
statistics have the least and the greatest values of files. Last, all of that is deleted, but for the change of
metadata: whoever was at work on the version before has to find it. A commit to an older version still would be one
that nobody reads, below the checkpoint.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from spark_jobs.apply.staging import sweep_staging
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.delta.checkpoints import CHECKPOINT_PROPERTY, write_checkpoint
from spark_jobs.delta.files import remove_empty_folders
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import delta_identifier, table_errors
from spark_jobs.errors import LakeError, NeedsSnapshotError
from spark_jobs.forget.row_keys import RowKeys, matches
from spark_jobs.lake.latest_cut import show_in_latest_cut
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.options.table_mask import why_masked_otherwise
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_overtaken
from spark_jobs.run import Run
from spark_jobs.schema.net_columns import value
from spark_jobs.snapshot.chunks.read_record import ReadRecord, plans
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.writers.merge_sql import quoted
from spark_jobs.writers.table_commit import Provenance, commit_without_rows
from spark_jobs.writers.table_writer import WrittenTable, record
from spark_jobs.writers.with_arrow.opened_table import opened_table
from spark_jobs.writers.with_arrow.plain_table import has_known_columns, plain_table, without_rows
from spark_jobs.writers.with_spark.delta_table import set_properties
from spark_jobs.writers.write_choice import compaction_writer

# when rows were removed the last time: no version from before can be read
ERASED = "postgres_cdc.erased"
# rows are removed from files, not hidden; and the checkpoint is of the commit that we make
_WHOLE_FILES = {
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
}
_KEYS = "forgotten_keys"


@dataclass(frozen=True)
class RowsForgotten:
    """What was removed of one table: ``rows`` of its newest version, which in modes that keep the past may be several
    of each, and ``files`` from the storage. No Delta version before ``delta_version`` can be read any more."""

    name: QualifiedName
    rows: int
    files: int
    delta_version: int


@dataclass(frozen=True)
class _Erased:
    """``rows`` were deleted. ``listed``: the folder and the table before the commit that ended all writes begun by
    then. ``version``: the numbered commit after it."""

    rows: int
    listed: ListedTable
    version: int


@dataclass(frozen=True)
class TableToErase:
    """The table ``name`` of the lake, from which the rows with these ``keys`` are removed. It shows the window ``last``
    or a later one."""

    run: Run
    name: QualifiedName
    keys: RowKeys
    last: WindowMarker

    @property
    def path(self) -> Location:
        return self.run.pipeline.lake.table(self.name)

    @property
    def is_written_by_arrow(self) -> bool:
        pipeline = self.run.pipeline
        layout = pipeline.table(self.name).options.layout
        return compaction_writer(pipeline.merge_engine, pipeline.spark, layout, 0, pipeline.writes) == "deltalake"

    def state(self) -> TableState:
        """The table's state. Raises CdcError if rows of the table cannot be forgotten as it is now."""
        lake, name = self.run.pipeline.lake, self.name
        state = table_state(lake, name, self.last.identity)
        if state is None or state.is_lost:
            raise LakeError(f"{name} has no snapshot in the lake", hint="`postgres-cdc sync` takes it")
        if why := why_masked_otherwise(state.generation.mask, self.keys.facts.mask):
            raise NeedsSnapshotError.because(name, why)
        for plan in plans(lake):
            if plan.name == name and plan.goes_on_from(state):
                raise LakeError(f"a snapshot of {name} is not read to its end", hint="`postgres-cdc sync` reads on")
            if plan.name == name:  # a process was killed when it had committed what it read
                ReadRecord(lake, name).remove()
        return state

    def provenance(self) -> Provenance:
        """That of a commit that changes nothing, and repeats how far the table is."""
        state, at = self.state(), self.last
        if state.ordinal > at.ordinal:
            at = self.run.log.marker(state.ordinal) or at
        relid, ends = state.relid or self.keys.facts.relid, (at.ordinal, at.ordinal, at.window.lo, at.window.hi)
        return Provenance.following(state, self.last.identity, relid, *ends, self.run.run_id)


@again_when_overtaken
def forget_rows(work: TableToErase) -> RowsForgotten:
    """Remove the rows, of whatever version. The caller has the table's lock. Raises CdcError."""
    path, lake = work.path, work.run.pipeline.lake
    with table_errors(f"{path} cannot be written"):
        provenance = work.provenance()
        table = plain_table(path)
        if table is not None and has_known_columns(table) and work.is_written_by_arrow:
            erased = _erased_by_arrow(work, table, provenance)
        else:
            erased = _erased_by_spark(work, provenance)
        newest = ListedTable.required(path)
        if newest.checkpoint < erased.version:
            raise LakeError(f"{path} has no checkpoint of version {erased.version} yet", hint="run it again")
        with work.run.guard.cuts():
            show_in_latest_cut(lake, work.last.identity, [work.name])
        files = erased.listed.remove_all_but(newest, erased.version - 1)
        remove_empty_folders(path)  # those of partitions have values in their names
        sweep_staging(lake, work.state())
    return RowsForgotten(work.name, erased.rows, files, erased.version)


def _erased_by_arrow(work: TableToErase, table: ListedTable, provenance: Provenance) -> _Erased:
    values = work.keys.values(work.keys.in_lake)

    def chosen(rows: pa.RecordBatch) -> pa.Array:
        return matches({name: rows.column(name) for name in values.column_names}, values)

    _, rows = without_rows(table, values.column_names, chosen)
    listed = ListedTable.required(table.path).with_properties({ERASED: _now()})
    opened = opened_table(table.path, listed.version)
    written = WrittenTable(work.run.pipeline, work.name, work.run.spark, f"{work.name} was not forgotten", opened)
    version = record(written, provenance)
    write_checkpoint(table.path)
    return _Erased(rows, listed, version)


def _erased_by_spark(work: TableToErase, provenance: Provenance) -> _Erased:
    path, values = work.path, work.keys.values(work.keys.in_lake)
    table = delta_identifier(path)
    named = values.rename_columns([value(place) for place in range(values.num_columns)])
    same = " AND ".join(f"t.{quoted(name)} = s.{value(place)}" for place, name in enumerate(values.column_names))
    with spark_errors(f"{work.name} was not forgotten", name=work.name, path=path):
        spark = work.run.spark()
        with isolated_session(spark, _WHOLE_FILES) as own:
            own.createDataFrame(named).createOrReplaceTempView(_KEYS)
            merge = f"MERGE INTO {table} AS t USING {_KEYS} AS s ON {same} WHEN MATCHED THEN DELETE"
            rows = own.sql(merge).collect()[0]["num_deleted_rows"]
            if any(file.get("deletionVector") for file in ListedTable.required(path).files.values()):
                own.sql(f"REORG TABLE {table} APPLY (PURGE)")
            interval = own.sql(f"DESCRIBE DETAIL {table}").collect()[0]["properties"].get(CHECKPOINT_PROPERTY)
            listed = ListedTable.required(path)
            set_properties(own, path, {CHECKPOINT_PROPERTY: "1", ERASED: _now()})
        version = commit_without_rows(spark, path, provenance)
        with isolated_session(spark, {}) as own:  # 1 is what a call that was killed has left
            if interval not in (None, "1"):
                set_properties(own, path, {CHECKPOINT_PROPERTY: interval})
            else:
                own.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ('{CHECKPOINT_PROPERTY}')")
    return _Erased(rows, listed, version)


def _now() -> str:
    return datetime.now(UTC).isoformat()
