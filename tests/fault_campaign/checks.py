"""What must hold after every run, seen from outside: the slot is not ahead of the log, and the log has no gap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Lsn
from tests.fixtures.servers import Database


def check(database: Database, pipeline: Pipeline, since: int) -> tuple[int, list[str]]:
    """What is wrong with slot and log; of windows those from ``since`` on are read. Also the last window's ordinal."""
    # first the slot: the log only grows
    moved_to = _slot_lsn(database, pipeline.source.slot)
    markers = ChangeLog(pipeline.lake.change_log).markers(since - 1)
    if not markers:
        return since, [] if moved_to is None else [f"there is a slot at {moved_to}, and no window"]
    problems = gaps(markers)
    if moved_to is not None and moved_to > markers[-1].window.hi:
        problems.append(f"the slot stands at {moved_to}, ahead of the log, which ends at {markers[-1].window.hi}")
    return markers[-1].ordinal, problems


def gaps(markers: Sequence[WindowMarker]) -> list[str]:
    """Where two windows, of those that should follow one on the other, do not."""
    return [
        f"window {after.ordinal} {after.window} does not follow on window {before.ordinal} {before.window}"
        for before, after in pairwise(markers)
        if after.ordinal != before.ordinal + 1 or after.window.lo != before.window.hi
    ]


def _slot_lsn(database: Database, slot: str) -> Lsn | None:
    rows = database.execute(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'")
    return Lsn.parse(str(rows[0][0])) if rows else None
