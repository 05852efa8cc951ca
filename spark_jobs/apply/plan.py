"""Plan what to apply: which tables have changes in the landed windows, and from which window on.

The log's markers say which relations a window changed, and the latest cut says how far each table is. So a table
without changes costs nothing: its Delta table is not opened, nothing is scanned and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.window_marker import WindowMarker, first_missing
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError, new_snapshot
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.tables.at_source import all_followed_names, resolved
from spark_jobs.tables.ledger import Ledger, concerns
from spark_jobs.writers.with_arrow.opened_table import file_bytes, opened_table


@dataclass(frozen=True)
class Plan:
    """``asked_for``: the tables to bring further, in that order; ``MESSAGES_NAME`` may be one of them.

    ``followed`` are all tables of the pipeline that can go on. ``ledger`` says how far the tables are. ``work`` has
    one entry per table with something to apply. ``ahead`` are the landed windows that some table, or the messages
    table, still lacks. ``last`` is the window at whose end everything is applied. ``goes_on``: more windows follow, and
    a day or an hour ends with ``last``: all tables have to be in a cut before one of them is brought further.
    """

    asked_for: tuple[QualifiedName, ...]
    followed: tuple[QualifiedName, ...]
    ledger: Ledger
    work: tuple[TableRange, ...]
    ahead: tuple[WindowMarker, ...]
    last: WindowMarker
    goes_on: bool = False

    @property
    def tables(self) -> tuple[QualifiedName, ...]:
        """Those asked for, without the messages table."""
        return tuple(name for name in self.asked_for if name != MESSAGES_NAME)

    @property
    def messages(self) -> bool:
        """Whether the messages table was asked for."""
        return MESSAGES_NAME in self.asked_for

    @property
    def shows_all_tables(self) -> bool:
        """Whether all followed tables take part: only then a cut is written."""
        return set(self.tables) >= set(self.followed)

    def is_little(self, limits: WriteLimits, uncaptured: int) -> bool:
        """Whether little is to be done, with ``uncaptured`` bytes of WAL: then a JVM need not become fast. False if a
        table has no snapshot, or only Spark can open it.

        It is a guess: a table that turns out to need a new snapshot is read all the same, only more slowly.
        """
        if self.ledger.errors:
            return False
        changes = sum(relation.bytes for marker in self.ahead for relation in marker.relations)
        if changes + uncaptured > limits.little_bytes:
            return False
        opened = [opened_table(work.path, work.state.version) for work in self.work]
        sizes = [file_bytes(table.files) for table in opened if table is not None]
        return len(sizes) == len(opened) and sum(sizes) <= limits.little_tables


def plan_apply(
    run: Run,
    names: Sequence[QualifiedName] | None = None,
    *,
    excluding: Collection[QualifiedName] = (),
    upto: Lsn | None = None,
    ledger: Ledger | None = None,
    ended: int = -1,
) -> Plan:
    """Plan ``names`` (default: all followed tables, and the messages table if the pipeline keeps one) without
    ``excluding``, up to the last window that ends at or before ``upto``, or to the first end of a day or an hour after
    window ``ended``. ``ledger``: what a caller has just read of all these tables, so that it is not read again.

    Raises LakeError when there is no change log.
    """
    run = run.of(resolved(run.pipeline))
    pipeline = run.pipeline
    followed = tuple(name for name in all_followed_names(pipeline) if name not in excluding)
    if names is None:
        names = (*followed, MESSAGES_NAME) if has_messages_table(pipeline) else followed
    asked_for = tuple(name for name in names if name not in excluding)
    tables = [name for name in asked_for if name != MESSAGES_NAME]
    ledger = ledger.only(asked_for) if ledger else Ledger.required(pipeline.lake).reading(asked_for)
    missing = {
        name: LakeError(f"{name} has no snapshot yet", hint=new_snapshot(name))
        for name in ledger.without_snapshot(tables)
    }
    ledger = replace(ledger, errors={**ledger.errors, **missing})
    # upto is an LSN of the log's current chapter: all windows of earlier chapters come before it, whatever their LSNs
    chapter, lowest = ledger.identity.chapter, _lowest(ledger, asked_for)
    if pipeline.periods and ledger.cut is not None:  # it may have been killed before the cut at an end was written
        lowest = min(lowest, ledger.cut.ordinal)
    ahead = tuple(
        marker
        for marker in ledger.markers(lowest)
        if upto is None or marker.window.hi <= upto or marker.identity.chapter < chapter
    )
    end = _first_end(ledger, ahead, ended) if pipeline.periods else None
    ahead, after = ahead[:end], () if end is None else ahead[end:]
    work = tuple(
        TableRange(run, ledger.states[name], ahead)
        for name in tables
        if name in ledger.states and _has_work(pipeline, ledger.states[name], ahead)
    )
    last = ahead[-1] if ahead else ledger.last
    return Plan(asked_for, followed, ledger, work, ahead, last, bool(after))


def _first_end(ledger: Ledger, ahead: Sequence[WindowMarker], ended: int) -> int | None:
    """How many of the windows ``ahead`` come before the first end of a day or an hour, after window ``ended``, that
    some table or the latest cut has not reached, that window included. None if there is no such end."""
    reached = [state.ordinal for state in ledger.states.values()] + ([ledger.cut.ordinal] if ledger.cut else [])
    floor = max(ended, min(reached, default=ledger.last.ordinal))
    return next((n for n, marker in enumerate(ahead, 1) if marker.ends and marker.ordinal > floor), None)


def _has_work(pipeline: Pipeline, state: TableState, ahead: Sequence[WindowMarker]) -> bool:
    """Whether some window concerns the table. Also true if the log lacks a window after the table's: it may have held
    changes of the table, and applying then reports the gap."""
    later = [marker for marker in ahead if marker.ordinal > state.ordinal]
    if state.is_lost and pipeline.table(state.name).shows:  # it does not know whose changes concern it
        return bool(later)
    return first_missing(state.ordinal, later) is not None or any(concerns(marker, state) for marker in later)


def _lowest(ledger: Ledger, asked_for: Sequence[QualifiedName]) -> int:
    """The ordinal after which some table has windows to look at."""
    if MESSAGES_NAME in ledger.without_snapshot(asked_for):
        return -1  # its first commit covers the log from its beginning
    return min([ledger.last.ordinal, *(state.ordinal for state in ledger.states.values())])
