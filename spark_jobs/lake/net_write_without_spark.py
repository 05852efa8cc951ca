"""Write the net change of one table without Spark: with ``deltalake``, in the same kind of commit as ``net_write``.

This takes 0.03 s where a warm Spark session needs a second, and no JVM has to start. But a MERGE of ``deltalake``
rewrites whole files that hold a changed row. So this is only for small tables, for appends, and for larger tables much
of which has changed, as long as their rows fit in memory: there it takes a third of the CPU time of Spark. Where the
rows are not certain to be those that Spark would write, the work is left to Spark.

https://delta-io.github.io/delta-rs/usage/merging-tables/
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from spark_jobs.delta.append import after_commit
from spark_jobs.delta.commit import KnownCommit, Transaction
from spark_jobs.delta.commit_errors import commit_errors, first_line, is_of_storage, overtaken
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.written_tables import commit_properties, keep_written
from spark_jobs.lake.kept_values import with_kept_values
from spark_jobs.lake.merge_sql import RANGED, key_matches, quoted
from spark_jobs.lake.net_write import NetSource
from spark_jobs.lake.opened_table import FEATURES, SMALL_BYTES, OpenedTable, file_sizes, wide_bytes
from spark_jobs.lake.rewrite import is_much
from spark_jobs.lake.table_commit import Provenance
from spark_jobs.lake.table_state import Strategy, TableState, state_written
from spark_jobs.lake.written_rows import append_rows, rewrite_rows
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.net_columns import DELETE, OPERATION, UPSERT, value
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.table_mode import keeps_past

_log = logging.getLogger(__name__)

_IN_MEMORY_BYTES = 512 << 20  # of rows that are written anew
_IN_FILES_BYTES = _IN_MEMORY_BYTES // 4  # of the same rows
# each append adds a file; a small table with this many is rewritten as one
_MANY_FILES = 16
# Spark treats NaN as equal to NaN, and 0 to -0; DataFusion joins floats by their bits
_NO_KEYS = {LakeKind.FLOAT, LakeKind.DOUBLE}
_STATISTICS = ColumnProperties(statistics_enabled="CHUNK")
_NO_STATISTICS = ColumnProperties(statistics_enabled="NONE")


def write_net_without_spark(
    opened: OpenedTable,
    name: QualifiedName,
    net: NetSource,
    provenance: Provenance,
    *,
    compact: bool = False,
    merges: bool = True,
) -> TableState | None:
    """Commit a net change that is not empty, on the version that was opened. Returns the state of the table ``name``
    after it.

    Returns None if the work is left to Spark. Raises OvertakenError if anybody has committed to the table since its
    state was read. ``compact``: a compaction is due, which a table that is not small leaves to Spark, unless it is
    rewritten anyhow. ``merges``: else what needs a MERGE is left to Spark, too.
    """
    if net.in_memory is None or not _is_certain(opened, net):
        return None
    whole = with_kept_values(opened, net, net.in_memory)
    if whole is None:
        return None
    net, rows = whole
    held = _commits_held(opened, provenance)
    if held is None:  # the table may have forgotten it: see table_state
        return None
    if held != provenance.commits - 1:
        raise overtaken(opened.path)
    strategy = _strategy(opened, net, rows, compact=compact)
    if strategy is None or (strategy == "merge" and not merges):
        return None
    provenance = replace(provenance, strategy=strategy)
    transaction = Transaction(provenance.txn_app_id, provenance.commits)
    metadata = provenance.user_metadata()
    commit = commit_properties(transaction, commit_id=provenance.id, retries=0, userMetadata=metadata)
    shape = net.columns.shape
    with commit_errors(opened.path):
        try:
            if strategy == "append":
                version = append_rows(opened, shape, rows, commit)
            elif strategy == "rewrite":
                version = rewrite_rows(opened, shape, rows, commit)
            else:
                version = _merge(opened, net, rows, commit)
        except CommitFailedError:
            raise
        except DeltaError as error:
            if is_of_storage(error):
                raise
            # harmless if the commit was made before the error: then Spark's commit of the same number is skipped
            _log.warning("%s is left to Spark, as deltalake failed: %s", opened.path, first_line(error))
            return None
    made = KnownCommit(version, provenance.id)
    state = state_written(name, version, provenance.commits, json.loads(metadata), made)
    keep_written(opened.opened, commit)
    return state


def _commits_held(opened: OpenedTable, provenance: Provenance) -> int | None:
    """The number of our commits at the version that was opened. ``deltalake`` would read all commits once more."""
    with table_errors(f"{opened.path} cannot be read"):
        return opened.opened.log.transaction_version(provenance.txn_app_id)


def _strategy(opened: OpenedTable, net: NetSource, rows: pa.Table, *, compact: bool) -> Strategy | None:
    """None if Spark does it better."""
    if opened.has_files_elsewhere:
        return "append" if net.insert_only and not compact else None
    sizes = file_sizes(opened, net.columns.shape, net.key_range)
    is_small = sizes.whole <= SMALL_BYTES
    if is_small and sizes.files >= _MANY_FILES and _fit_in_memory(opened.rows, sizes.whole, rows):
        return "rewrite"
    if net.insert_only:
        return None if compact and not is_small else "append"
    if _are_mostly_changed(opened.rows, sizes.whole, rows):
        return "rewrite"
    if compact and not is_small:
        return None
    if sizes.touched <= max(SMALL_BYTES, wide_bytes(rows)) or _are_mostly_changed(sizes.beside, sizes.touched, rows):
        return "merge"
    return None


def _are_mostly_changed(held: int | None, in_files: int, rows: pa.Table) -> bool:
    """Whether ``rows`` change so many of ``held`` rows that these are written anew, and they fit in memory."""
    return is_much(rows.num_rows, held) and _fit_in_memory(held, in_files, rows)


def _fit_in_memory(held: int | None, in_files: int, rows: pa.Table) -> bool:
    """Whether ``held`` rows fit, if they are as wide as the changed ones. Rows that go have no values but the key's, so
    the bytes that these rows take in files are limited too."""
    if held is None or in_files > _IN_FILES_BYTES:
        return False
    return bool(held * rows.nbytes <= _IN_MEMORY_BYTES * rows.num_rows)


def _is_certain(opened: OpenedTable, net: NetSource) -> bool:
    """Whether the merge is certain to result in the same rows as Spark's. (Of a kept value's row too: if that is
    missing, Spark's MERGE fails, and ``deltalake``'s has no way to fail.)"""
    columns, shape = net.columns, net.columns.shape
    if not opened.features <= FEATURES:
        return False
    if keeps_past(columns.mode) or not shape.has_key or net.truncated or net.ended is not None:
        return False
    if any(shape.columns[place].lake_type.kind in _NO_KEYS for place in shape.key_indices):
        return False
    return {column.name for column in shape.columns} == {column.name for column in opened.columns}


def _merge(opened: OpenedTable, net: NetSource, rows: pa.Table, commit: CommitProperties) -> int:
    """Returns the new version."""
    shape = net.columns.shape
    values = {quoted(column.name): f"s.{value(place)}" for place, column in enumerate(shape.columns)}
    keys = {quoted(shape.columns[place].name) for place in shape.key_indices}
    merge = opened.table.merge(
        rows,
        predicate=" AND ".join(key_matches(shape, net.key_range)),
        source_alias="s",
        target_alias="t",
        writer_properties=_written(opened, shape),
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    ).when_matched_delete(f"s.{OPERATION} = {DELETE}")
    if updates := {name: come for name, come in values.items() if name not in keys}:
        merge = merge.when_matched_update(updates, predicate=f"s.{OPERATION} = {UPSERT}")
    merge = merge.when_not_matched_insert(values, predicate=f"s.{OPERATION} = {UPSERT}")
    merge.execute()
    return int(opened.table.version())


def _written(opened: OpenedTable, shape: TableShape) -> WriterProperties:
    """Statistics of integers and dates. ``deltalake`` writes those of decimals as doubles and ignores NaN in those of
    floats: with them Spark would skip files that it has to read."""
    ranged = {opened.physical[column.name]: _STATISTICS for column in shape.columns if column.lake_type.kind in RANGED}
    return WriterProperties(
        compression="SNAPPY", default_column_properties=_NO_STATISTICS, column_properties=ranged or None
    )
