"""A Delta table's past states: those that our commits made, as far back as Delta keeps its log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.table import log_errors
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.lake.generation import NO_GENERATION
from spark_jobs.lake.table_state import TXN_PREFIX, TableState, state_written, txn_app_id
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

_NEVER = sys.maxsize


@dataclass(frozen=True)
class PastState:
    """The ``state`` that one commit left. ``at``: the commit's time, in microseconds since 1970, by its writer's clock.
    ``is_snapshot``: the state shows the source at exactly ``state.snapshot_lsn``, and no later change."""

    state: TableState
    at: int
    is_snapshot: bool


def past_states(lake: Lake, name: QualifiedName, identity: SlotIdentity) -> Iterator[PastState]:
    """The table's past states, newest first. Raises LakeError.

    Each one's ``version`` is the last before our next commit: foreign commits in between, such as an OPTIMIZE, show the
    same rows. States that a rebuild of the same generation has replaced are left out.
    """
    path, app_id = lake.table(name), txn_app_id(*identity.stream)
    with log_errors(str(name), path):
        log = TransactionLog.open(path)
        newest = log.version if log is not None else -1
        replaced_from, generation = _NEVER, NO_GENERATION
        for commit in log.commits() if log is not None else ():
            for txn in commit.transactions:
                if txn.app_id == app_id:
                    written = commit.user_metadata
                    state = state_written(name, newest, txn.version, written, commit.known)
                    if state.generation != generation:
                        replaced_from, generation = _NEVER, state.generation
                    begins = written["lo"] == written["hi"] and not written.get("columns")
                    if state.ordinal < replaced_from:
                        is_snapshot = begins and Lsn.parse(written["lo"]) == state.snapshot_lsn
                        yield PastState(state, commit.timestamp, is_snapshot)
                    replaced_from = _NEVER if begins else min(replaced_from, _begin(written))
                if txn.app_id.startswith(TXN_PREFIX):
                    newest = commit.version - 1


def _begin(written: dict[str, Any]) -> int:
    """The first window whose changes the commit applied. A commit that only changed columns applied none: then it is
    the window after the table's."""
    first: int = written["first_window"]
    return first + 1 if written["lo"] == written["hi"] else first
