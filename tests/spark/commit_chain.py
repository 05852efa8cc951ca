"""The commits of ours to one Delta table, as its log tells them: do their windows follow one on the other?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.lake.generation import Generation


@dataclass(frozen=True)
class OurCommit:
    """``number`` is its ``txnVersion``; ``at`` is when its file was written, by the clock of ``time.time``.
    ``takes_windows``: it brings the table on; one that gives the rows new columns leaves it at its window."""

    version: int
    app_id: str
    number: int
    generation: str
    relid: int
    first: int
    last: int
    takes_windows: bool
    run_id: str
    at: float


def our_commits(table: str) -> list[OurCommit]:
    """Oldest first. An OPTIMIZE, ours or not, carries no transaction identifier and is none of them."""
    commits = []
    for file in sorted(Path(table, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        txn = next((action["txn"] for action in actions if "txn" in action), None)
        if txn is None:
            continue
        metadata = json.loads(
            next(action["commitInfo"]["userMetadata"] for action in actions if "commitInfo" in action)
        )
        commits.append(
            OurCommit(
                version=int(file.stem),
                app_id=txn["appId"],
                number=txn["version"],
                generation=metadata["generation"],
                relid=metadata["relid"],
                first=metadata["first_window"],
                last=metadata["last_window"],
                takes_windows=metadata["lo"] != metadata["hi"],
                run_id=metadata["run_id"],
                at=file.stat().st_mtime,
            )
        )
    return commits


def commits_after_death(commits: Sequence[OurCommit], deaths: Mapping[str, float]) -> int:
    """How many were made by what a killed run left behind. ``deaths``: when each was killed, by run."""
    return sum(commit.at > deaths.get(commit.run_id, float("inf")) for commit in commits)


def faults(commits: Sequence[OurCommit], markers: Sequence[WindowMarker]) -> list[str]:
    """What is wrong with a table's chain of commits; nothing, if the windows of each generation tile.

    A window between two commits may be missing only if it holds nothing of the table that its snapshot does not show:
    then the table is at its end without a commit, and may be given columns there. A window that begins before the
    snapshot may hold nothing else; if it does, the rows differ. So they do if windows are missing whose changes only
    seem to cancel out: as many rows inserted as deleted are no change when they are the same rows.
    """
    problems = []
    changes = {(marker.ordinal, counts.relid): counts.changes for marker in markers for counts in marker.relations}
    begins = {marker.ordinal: marker.window.lo for marker in markers}
    for before, after in pairwise(commits):
        between = range(before.last + 1, after.first if after.takes_windows else after.first + 1)
        shown = Generation.parse(after.generation).snapshot_lsn
        left_out = [n for n in between if (n, after.relid) in changes and begins[n] >= shown]
        if _may_cancel_out([changes[n, after.relid] for n in left_out]):
            left_out = []
        if after.app_id == before.app_id and after.number <= before.number:
            problems.append(f"number {after.number} after {before.number}: {after}")
        if after.generation != before.generation:
            if any(each.generation == after.generation for each in commits if each.version < before.version):
                problems.append(f"a snapshot that was replaced is back: {after}")
        elif not after.takes_windows and after.last < before.last:
            problems.append(f"columns were written at window {after.last}, the table was at {before.last}: {after}")
        elif after.takes_windows and after.first <= before.last:
            problems.append(f"windows {after.first} to {min(after.last, before.last)} twice: {after}")
        elif left_out:
            problems.append(f"windows {left_out} left out: {after}")
    return problems


def _may_cancel_out(changes: Sequence[ChangeCounts]) -> bool:
    counted = sum(changes, start=NO_CHANGES)
    return counted.inserts == counted.deletes > 0 and not counted.truncates
