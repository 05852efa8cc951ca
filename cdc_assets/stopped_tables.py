"""The tables that are stopped: since when, and how often they were tried. The runs record it in a tag.

A stopped table must neither make the others wait nor cost every run. So each run of the pipeline receives what the
previous run recorded, and records what it found itself; the next run leaves out the tables whose turn it is not. The
instance's runs are the only state.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

STOPPED_TAG = "postgres_cdc/stopped"


@dataclass(frozen=True)
class StoppedTable:
    """``since`` is the time of the first try that failed, ``tried`` that of the last one, in seconds since 1970."""

    name: str
    since: int
    tried: int
    tries: int

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC)
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return f"{self.name} is stopped since {since:%Y-%m-%d %H:%M:%S} UTC (tried {times})"


@dataclass(frozen=True)
class StoppedTables:
    """``by``: the run that recorded this, after it had tried all its tables; empty if a run only received it."""

    tables: tuple[StoppedTable, ...] = ()
    by: str = ""

    @classmethod
    def of_run(cls, tags: Mapping[str, str]) -> StoppedTables:
        """What a run recorded; if it did not get that far, what it received."""
        record = json.loads(tags.get(STOPPED_TAG, "{}"))
        return cls(tuple(StoppedTable(**table) for table in record.get("tables", ())), record.get("by", ""))

    @property
    def tags(self) -> dict[str, str]:
        return {STOPPED_TAG: json.dumps(asdict(self), separators=(",", ":"))} if self.tables or self.by else {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(table.name for table in self.tables)

    def followed(self, names: Collection[str]) -> StoppedTables:
        """Without tables that are no longer followed."""
        return StoppedTables(tuple(table for table in self.tables if table.name in names))

    def after(self, run_id: str, tried: Collection[str], failed: Collection[str], now: float) -> StoppedTables:
        """What run ``run_id`` records, which ``tried`` these tables."""
        known = {table.name: table for table in self.tables}
        left_out = [table for table in self.tables if table.name not in tried]
        first = StoppedTable("", int(now), int(now), 0)
        before = {name: known.get(name, first) for name in sorted(failed)}
        again = [StoppedTable(name, was.since, int(now), was.tries + 1) for name, was in before.items()]
        return StoppedTables((*left_out, *again), run_id)
