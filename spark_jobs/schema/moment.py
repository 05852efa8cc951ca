"""When something happened at the source: an LSN and a time, as the lake's rows have it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.logicalrep.lsn import Lsn


@dataclass(frozen=True)
class Moment:
    """A commit's LSN, or a snapshot's. ``at``: the time then, in microseconds since 1970, UTC; None where it is not
    known, as the plugin did not send it."""

    lsn: Lsn
    at: int | None

    @property
    def sql(self) -> str:
        """The time as an expression."""
        return "CAST(NULL AS TIMESTAMP)" if self.at is None else f"timestamp_micros({self.at})"
