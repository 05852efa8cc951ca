"""What the table of each mode holds, compared with the audit log of the source. Tables have the columns ``COLUMNS``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.mode_columns import mode_columns
from tests.fixtures.row_compare import lake_rows as table_rows
from tests.spark.audit import Audited, Row, Versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("id", "v", "doc", "n")
_NOT_SENT = object()


def lake_rows(spark: SparkSession, pipeline: Pipeline, relname: str, mode: Mode) -> list[Row]:
    """All that the table holds, in the columns of its mode."""
    table = table_rows(spark, pipeline.lake.table(QualifiedName("public", relname)))
    assert table.column_names == [*COLUMNS, *(column.name for column in mode_columns(mode))]
    return list(table.to_pylist())


def xids_by_lsn(pipeline: Pipeline) -> dict[int, int]:
    """Of the commits that the change log has; what is not in it, is a snapshot."""
    log = ChangeLog(pipeline.lake.change_log)
    markers = log.markers()
    relids = sorted({counts.relid for marker in markers for counts in marker.relations})
    changes = log.read(relids, markers[0].ordinal, markers[-1].ordinal)
    pairs = zip(changes.column("commit_lsn").to_pylist(), changes.column("xid").to_pylist(), strict=True)
    return {lsn: xid for lsn, xid in pairs if xid is not None}


@dataclass(frozen=True)
class Oracle:
    """``since``: the rows of the first snapshot; ``audit``: every change behind it. ``whole``: old rows come whole."""

    since: Sequence[Row]
    audit: Sequence[Audited]
    xids: Mapping[int, int]
    whole: bool = False

    def assert_agrees(self, mode: Mode, rows: Sequence[Row]) -> None:
        {
            "mirror": self._assert_mirror,
            "soft_delete": self._assert_soft_deleted,
            "history": self._assert_history,
            "append": self._assert_appended,
        }[mode](rows)

    @property
    def _versions(self) -> Versions:
        return Versions.of("id", self.since, self.audit)

    def _assert_mirror(self, rows: Sequence[Row]) -> None:
        assert Counter(map(_values, rows)) == Counter(_values(row) for row, _ in self._versions.open.values())

    def _assert_soft_deleted(self, rows: Sequence[Row]) -> None:
        assert Counter((_values(row), row["_deleted_at"] is not None) for row in rows) == (
            Counter((_values(row), deleted is not None) for row, deleted in self._versions.soft_deleted)
        )

    def _assert_history(self, rows: Sequence[Row]) -> None:
        xids = self.xids
        assert Counter(
            (_values(row), xids.get(row["_valid_from_lsn"]), row["_valid_to_lsn"] and xids[row["_valid_to_lsn"]])
            for row in rows
        ) == Counter((_values(row), begun, ended) for row, begun, ended in self._versions.history)
        assert all((row["_valid_to"] is None) == (row["_valid_to_lsn"] is None) for row in rows)
        assert all(row["_valid_to"] is None or row["_valid_from"] <= row["_valid_to"] for row in rows)

    def _assert_appended(self, rows: Sequence[Row]) -> None:
        snapshot = [_values(row) for row in rows if row["_operation"] == "snapshot"]
        assert Counter(snapshot) == Counter(map(_values, self.since))
        expected = [change for audited in self.audit for change in self._as_appended(audited)]
        changes = [
            (row["_operation"], row["_xid"], *_shown(row))
            for row in sorted(
                rows, key=lambda row: (row["_commit_lsn"], row["_ordinal"], row["_operation"] != "update_before")
            )
            if row["_operation"] != "snapshot"
        ]
        assert [change[:2] for change in changes] == [change[:2] for change in expected]
        assert [_agree(*pair) for pair in zip(changes, expected, strict=True)] == [True] * len(changes)

    def _as_appended(self, change: Audited) -> list[tuple[Any, ...]]:
        nothing = (None,) * len(COLUMNS)
        if change.op == "truncate":
            return [("truncate", change.xid, *nothing)]
        rows: list[tuple[Any, ...]] = []
        if change.op == "update" and (self.whole or change.old["id"] != change.new["id"]):  # type: ignore[index]
            rows.append(("update_before", change.xid, *_values(change.old or {})))
        shown = change.old if change.op == "delete" else change.new
        return [*rows, (change.op, change.xid, *_values(shown or {}))]


def _values(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in COLUMNS)


def _shown(row: Row) -> tuple[Any, ...]:
    missing = row["_not_sent"] or []
    return tuple(_NOT_SENT if name in missing else row[name] for name in COLUMNS)


def _agree(change: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """What was sent is right; what was not, is not claimed to be anything."""
    return all(mine is _NOT_SENT or mine == theirs for mine, theirs in zip(change, expected, strict=True))
