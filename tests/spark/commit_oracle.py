"""Which commit each row of a table must name in its commit columns, by the audit log of the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.lake.table_state import TableState
from spark_jobs.options.table_mode import CommitColumn, Mode
from tests.spark.audit import Audited, Row, Versions

BOTH: tuple[CommitColumn, ...] = ("_commit_lsn", "_commit_time")
Values = tuple[Any, ...]
Written = tuple[Values, int | None]  # a row's values, and the transaction that wrote it; None: a snapshot


@dataclass(frozen=True)
class Commits:
    """The transactions that the change log has, by their commits' LSNs, with the times of these."""

    xids: dict[int, int]
    times: dict[int, Any]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Commits:
        log = ChangeLog(pipeline.lake.change_log)
        markers = log.markers()
        relids = sorted({counts.relid for marker in markers for counts in marker.relations})
        changes = log.read(relids, markers[0].ordinal, markers[-1].ordinal)
        rows = list(
            zip(*(changes.column(name).to_pylist() for name in ("commit_lsn", "xid", "commit_time")), strict=True)
        )
        return cls({lsn: xid for lsn, xid, _ in rows if xid is not None}, {lsn: at for lsn, _, at in rows if at})

    def named_by(self, row: Row, snapshot_lsn: int) -> int | None:
        """The transaction whose LSN and time the row has; None for those of the snapshot."""
        lsn, at = row["_commit_lsn"], row["_commit_time"]
        assert at is not None
        if lsn not in self.xids:
            assert lsn == snapshot_lsn
            return None
        assert at == self.times[lsn]
        return self.xids[lsn]


def assert_commits(
    pipeline: Pipeline, state: TableState, rows: Sequence[Row], names: Sequence[str], expected: Sequence[Written]
) -> None:
    commits, lsn = Commits.of(pipeline), int(state.snapshot_lsn)
    writes = Counter((tuple(row[name] for name in names), commits.named_by(row, lsn)) for row in rows)
    assert writes == Counter(expected)


def last_writers(mode: Mode, names: Sequence[str], since: Sequence[Row], changes: Sequence[Audited]) -> list[Written]:
    """Of a table with the key ``id``."""
    versions = Versions.of("id", since, changes)
    by_mode: dict[Mode, Callable[[], list[tuple[Row, int | None]]]] = {
        "mirror": lambda: list(versions.open.values()),
        "soft_delete": lambda: [versions.open.get(key, last) for key, last in versions.last.items()],
        "history": lambda: [(row, begun if ended is None else ended) for row, begun, ended in versions.history],
    }
    return [(tuple(row[name] for name in names), xid) for row, xid in by_mode[mode]()]


@dataclass
class Copies:
    """A table without a key: of equal rows the oldest goes."""

    names: Sequence[str]
    queues: dict[Values, list[int | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Sequence[str], since: Sequence[Row], changes: Sequence[Audited]) -> Copies:
        copies = cls(names)
        for row in since:
            copies._queue(row).append(None)
        for change in changes:
            if change.op == "truncate":
                copies.queues.clear()
            if change.old is not None:
                copies._queue(change.old).pop(0)
            if change.new is not None:
                copies._queue(change.new).append(change.xid)
        return copies

    @property
    def written(self) -> list[Written]:
        return [(values, xid) for values, xids in self.queues.items() for xid in xids]

    def _queue(self, row: Row) -> list[int | None]:
        return self.queues.setdefault(tuple(row[name] for name in self.names), [])
