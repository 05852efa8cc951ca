"""One commit to one Delta table: who wrote it and what it covers.

Exactly once rests on its transaction identifier, see ``table_state``: the commit says how many commits of ours the
table had when its state was read, and Delta compares that with what it has, in the transaction that commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.errors import OvertakenError
from spark_jobs.lake.table_state import PartitionsRead, SnapshotCause, txn_app_id
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.spark.errors import is_concurrent_commit, is_overtaken
from spark_jobs.spark.session import isolated_session
from spark_jobs.table_mode import Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"


@dataclass(frozen=True)
class ModeOrigin:
    """Of a table that was made again in another mode: the one ``before``, the Delta version ``base_version`` that it
    grew from, and the LSN since which it knows what its mode keeps."""

    before: Mode
    base_version: int
    known_since: Lsn


@dataclass(frozen=True)
class Provenance:
    """What a commit says of itself: windows ``first`` to ``last`` of the slot, WAL ``[lo, hi)``, rows changed.

    ``system_identifier`` and ``slot`` are those that the log began with, in a later chapter of it too.
    A snapshot's ``first`` is its ``last``, the last window that it covers, and ``lo`` = ``hi`` = ``snapshot_lsn``.
    ``commits`` is the number of this commit: one more than the table had. ``cause`` is that of the table's snapshot,
    ``columns``: what happened to the table's columns since the commit before. ``mode_changed``: of the commit that put
    the table into another mode; its windows are those that were applied again. ``partitions``: those that were read
    again alone, by this commit or last before it.
    """

    system_identifier: int
    slot: str
    generation: str
    snapshot_lsn: Lsn
    first: int
    last: int
    lo: Lsn
    hi: Lsn
    relid: int
    commits: int
    run_id: str = ""
    changes: ChangeCounts = NO_CHANGES
    cause: SnapshotCause | None = None
    columns: tuple[str, ...] = ()
    mode_changed: ModeOrigin | None = None
    partitions: PartitionsRead | None = None

    @property
    def txn_app_id(self) -> str:
        return txn_app_id(self.system_identifier, self.slot)

    def user_metadata(self) -> str:
        """The commit's ``userMetadata``: JSON, LSNs as PostgreSQL writes them."""
        return json.dumps(
            {
                "system_identifier": self.system_identifier,
                "slot": self.slot,
                "generation": self.generation,
                "snapshot_lsn": str(self.snapshot_lsn),
                "relid": self.relid,
                "first_window": self.first,
                "last_window": self.last,
                "lo": str(self.lo),
                "hi": str(self.hi),
                "run_id": self.run_id,
                **asdict(self.changes),
                "columns": list(self.columns),
                "cause": None if self.cause is None else {**asdict(self.cause), "at": self.cause.at.isoformat()},
                "partitions_read": None if self.partitions is None else asdict(self.partitions),
                **_told(self.mode_changed),
            },
            separators=(",", ":"),
        )


def _told(changed: ModeOrigin | None) -> dict[str, object]:
    if changed is None:
        return {}
    return {"mode_changed": {**asdict(changed), "known_since": str(changed.known_since)}}


@contextmanager
def committing_session(spark: SparkSession, provenance: Provenance, *, compact: bool = False) -> Iterator[SparkSession]:
    """A session whose next Delta commit carries ``provenance``, and is skipped when the table has a commit of ours of
    that number: then another writer has brought it on since its state was read.

    ``compact``: small files are put together in a second commit. Not left to Delta's table property: in a fresh
    process its first commit always compacts, whatever the number of files.

    MERGE has no option for the transaction identifier, so it stands in the session's conf: one session per commit.
    """
    conf = {
        "spark.databricks.delta.write.txnAppId": provenance.txn_app_id,
        "spark.databricks.delta.write.txnVersion": str(provenance.commits),
        "spark.databricks.delta.commitInfo.userMetadata": provenance.user_metadata(),
        "spark.databricks.delta.autoCompact.enabled": str(compact).lower(),
    }
    with isolated_session(spark, conf) as own:
        # in Connect a clone inherits what its origin has noted, and a write that was skipped would look like a commit
        own.conf.unset(_LAST_COMMIT)
        yield own


def committed_version(session: SparkSession, path: str) -> int:
    """The Delta version that ``session`` committed last. Raises OvertakenError when its write was skipped."""
    version = session.conf.get(_LAST_COMMIT, None)
    if not version:
        raise _overtaken(path)
    return int(version)


def has_committed(session: SparkSession) -> bool:
    """Whether a write of ``session`` has become a commit: it was not skipped, and there was something to write."""
    return bool(session.conf.get(_LAST_COMMIT, None))


@contextmanager
def overtaking(path: str, *, by_any: bool = False) -> Iterator[None]:
    """Raises OvertakenError for Delta's conflict with a commit of ours that came while this one was written; with
    ``by_any`` for one with anybody's."""
    try:
        yield
    except Exception as error:
        if is_overtaken(error) or (by_any and is_concurrent_commit(error)):
            raise _overtaken(path) from error
        raise


def _overtaken(path: str) -> OvertakenError:
    return OvertakenError(f"another process has written {path} since its state was read", hint="run it again")
