"""Write a net change that touches much of its table: the whole table anew, in one overwrite.

A MERGE joins the table and the net change, finds the files with matching rows, and joins again. Here one join leaves
out the rows that the net change replaces or deletes, and all others are written beside its rows. For 750,000 changed
rows of a million this took two thirds of the CPU time, and it leaves files without deletion vectors.

Delta's transaction begins when the overwrite does, shortly after the version to read is chosen. Commits after that
beginning conflict, and the write is repeated; ``check_nothing_undone`` looks at those before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_jobs.delta.commit import Commit
from spark_jobs.delta.table import open_table
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import LakeError
from spark_jobs.lake.merge_sql import key_matches, named_columns, quoted
from spark_jobs.lake.opened_table import row_count
from spark_jobs.schema.net_columns import OPERATION, UPSERT, NetColumns, value
from spark_jobs.storage import Location
from spark_jobs.table_mode import keeps_past

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

_LEAST_ROWS = 50_000
_LEAST_SHARE = 0.25  # of the table's rows; for a smaller part, MERGE writes much less
# these promise readers what happened to single rows
_ROW_BY_ROW = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
_BROADCAST_KEYS = 1_000_000  # a hundred bytes each, at most; beyond that Spark decides how to join


def version_to_rewrite(path: Location, columns: NetColumns, rows: int) -> int | None:
    """The table's version, if a net change of ``rows`` rows is to be written by a rewrite; None if by a MERGE.

    It is None for a net change that keeps values of the table's rows, for a mode that keeps past rows, and for a table
    whose readers follow single rows.
    """
    if rows < _LEAST_ROWS or keeps_past(columns.mode) or not columns.shape.has_key:  # most net changes: nothing is read
        return None
    if columns.unchanged or columns.old_keys:
        return None
    try:
        table = open_table(path, path)
    except LakeError as error:  # such as a table with type widening, which deltalake does not know
        _log.info("%s is merged: %s", path, error)
        return None
    if table is None or any(table.metadata().configuration.get(name) == "true" for name in _ROW_BY_ROW):
        return None
    held = row_count(pa.table(table.get_add_actions(flatten=True)))
    return int(table.version()) if is_much(rows, held) else None


def is_much(rows: int, held: int | None) -> bool:
    """Whether ``rows`` changed rows are so many of the ``held`` ones that writing all anew costs less than a MERGE."""
    return held is not None and rows >= max(_LEAST_ROWS, held * _LEAST_SHARE)


def rewrite(rows: DataFrame, path: Location, columns: NetColumns, count: int, version: int) -> None:
    """Commit the table as of ``version`` with the net change ``rows``, ``count`` of them, in it."""
    from pyspark.sql.functions import broadcast, expr

    shape = columns.shape
    keys = rows.select(*(value(place) for place in shape.key_indices))
    if count <= _BROADCAST_KEYS:
        keys = broadcast(keys)
    table = rows.sparkSession.read.format("delta").option("versionAsOf", version).load(path)
    stay = table.alias("t").join(keys.alias("s"), expr(" AND ".join(key_matches(shape, None))), "left_anti")
    come = rows.where(f"{OPERATION} = {UPSERT}").selectExpr(*named_columns(shape.columns))
    names = [quoted(column.name) for column in shape.columns]
    stay.select(*names).union(come.select(*names)).write.format("delta").mode("overwrite").save(path)


def check_nothing_undone(path: Location, read: int, committed: int) -> None:
    """Raise LakeError if another writer changed rows between the version ``read`` and the beginning of the transaction
    that made the commit ``committed``: the rewrite has undone that change."""
    log = TransactionLog.open(path, committed)
    assert log is not None, f"{path} has just been committed to"
    commits = log.commits()
    began = next((int(each["readVersion"]) for each in next(commits).actions("commitInfo")), read)
    for commit in commits:
        if commit.version <= read:
            return
        if commit.version <= began and _changes_rows(commit):
            raise LakeError(
                f"{path}: commit {commit.version} of another writer was undone by commit {committed}, which rewrote the"
                f" table as of version {read}",
                hint="make that change again; while a table is followed, nobody else should write to it",
            )


def _changes_rows(commit: Commit) -> bool:
    actions: Iterable[dict[str, object]] = (*commit.actions("add"), *commit.actions("remove"))
    return any(action.get("dataChange", True) for action in actions)
