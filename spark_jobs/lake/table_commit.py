"""One commit to one Delta table: who wrote it and what it covers, exactly once by its transaction identifier."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from spark_jobs.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.lake.table_state import txn_app_id
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.spark.session import isolated_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"


@dataclass(frozen=True)
class Provenance:
    """What a commit says of itself: windows ``first`` to ``last`` of the slot, WAL ``[lo, hi)``, rows changed.

    A snapshot's ``first`` is its ``last``, the last window that it covers, and ``lo`` = ``hi`` = ``snapshot_lsn``.
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
    run_id: str = ""
    changes: ChangeCounts = NO_CHANGES

    @property
    def txn_app_id(self) -> str:
        return txn_app_id(self.system_identifier, self.slot, self.generation)

    def user_metadata(self) -> str:
        """For the commit's ``userMetadata``: JSON, LSNs as PostgreSQL writes them."""
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
            },
            separators=(",", ":"),
        )


@contextmanager
def committing_session(spark: SparkSession, provenance: Provenance, *, compact: bool = False) -> Iterator[SparkSession]:
    """A session whose next Delta commit carries ``provenance`` and is skipped when the table has it already.

    ``compact``: small files are put together in a second commit. Not left to Delta's table property: in a fresh
    process its first commit always compacts, whatever the number of files.

    MERGE has no option for the transaction identifier, so it stands in the session's conf: one session per commit.
    """
    conf = {
        "spark.databricks.delta.write.txnAppId": provenance.txn_app_id,
        "spark.databricks.delta.write.txnVersion": str(provenance.last),
        "spark.databricks.delta.commitInfo.userMetadata": provenance.user_metadata(),
        "spark.databricks.delta.autoCompact.enabled": str(compact).lower(),
    }
    with isolated_session(spark, conf) as own:
        yield own


def committed_version(session: SparkSession) -> int | None:
    """The Delta version that ``session`` committed last, or None: its write was skipped as done before."""
    version = session.conf.get(_LAST_COMMIT, None)
    return int(version) if version else None
