"""What change log and lake are now: how far each table is, and which landed windows concern it.

A table that is in the latest cut is not opened, so a sync does not cost more with each idle table. A snapshot takes its
table out of the cut first, and whoever writes a table reads its own log again. What the cut cannot know is what others
did: an OPTIMIZE, a table that was deleted or replaced, a commit of ours that another writer's has replaced
(``delta/commit.py``). A listing shows which tables are there. With each look some of them are checked: those that were
written just before the cut, as a commit is replaced by a writer that began when it was made, and a few others in turn.
The cut's version must be the newest, and our last commit must be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import ceil

from spark_jobs.change_log.log import ChangeLog, no_change_log
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta.files import ask_tables, existing_folders, lake_errors
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.transaction_log import is_as_known
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import Cut, TableCut, latest_cut
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.lake.messages_state import MESSAGES_NAME, messages_state
from spark_jobs.lake.table_state import TableState, entry_in_cut, noted_if_lost, state_in_cut, table_state
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.catalogue_changes import is_annotated, tells_of
from spark_jobs.tables.understood_windows import unknown_messages

# Each look checks one table in a hundred, as a check costs two or three requests to an object store, and two of the
# tables written last, others with each minute. If the cut is old, it checks all: by default VACUUM deletes the files
# of a version a week after an OPTIMIZE has replaced it
_TURNS = 100
_WRITTEN = 2
_OLD = timedelta(hours=1)


@dataclass(frozen=True)
class Ledger:
    """What change log and lake are, as they were last read. ``last``: the log's newest marker; ``cut``: the latest one;
    ``states`` of the tables that were asked for, ``errors`` of those that cannot be read.

    Tables without a snapshot are in neither, and nor is a messages table that does not exist yet. A table may have gone
    on since: whoever writes it reads its own log again.
    """

    lake: Lake
    last: WindowMarker
    cut: Cut | None = None
    states: Mapping[QualifiedName, TableState] = field(default_factory=dict)
    errors: Mapping[QualifiedName, LakeError] = field(default_factory=dict)

    @classmethod
    def of(cls, lake: Lake) -> Ledger | None:
        """Without any table; None if there is no change log. Raises LakeError if it or the cuts cannot be read."""
        last = landed_end(lake)
        return None if last is None else cls(lake, last, latest_cut(lake))

    @classmethod
    def required(cls, lake: Lake) -> Ledger:
        """Raises LakeError if there is no change log, too."""
        if (ledger := cls.of(lake)) is None:
            raise no_change_log(lake.change_log)
        return ledger

    @property
    def found(self) -> dict[QualifiedName, TableState | LakeError]:
        return {**self.states, **self.errors}

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(self.lake.change_log)

    @property
    def identity(self) -> SlotIdentity:
        return self.last.identity

    def markers(self, after_ordinal: int) -> tuple[WindowMarker, ...]:
        """Those of the windows after this ordinal, in order; the log is read for all but the newest."""
        missing = self.last.ordinal - after_ordinal
        return self.log.markers(after_ordinal) if missing > 1 else (self.last,) * missing

    def reading(self, names: Sequence[QualifiedName]) -> Ledger:
        """With how far these tables are at least; ``MESSAGES_NAME`` may be one of them. A table may be further than the
        latest cut says: ``opening`` finds out."""
        known = self._as_in_cut(names)
        answers = ask_tables(self.state_of, [name for name in names if name not in known])
        return self._with({name: known.get(name) or answers[name] for name in names})

    def opening(self, names: Sequence[QualifiedName]) -> Ledger:
        """With what these tables' own logs say."""
        return self._with({**self.found, **ask_tables(self.state_of, names)})

    def _with(self, answers: Mapping[QualifiedName, TableState | LakeError | None]) -> Ledger:
        states = {name: state for name, state in answers.items() if isinstance(state, TableState)}
        errors = {name: error for name, error in answers.items() if isinstance(error, LakeError)}
        return replace(self, states=states, errors=errors)

    def only(self, names: Iterable[QualifiedName]) -> Ledger:
        """Of these tables alone."""
        name_set = frozenset(names)
        return self._with({name: state for name, state in self.found.items() if name in name_set})

    def without_snapshot(self, names: Iterable[QualifiedName]) -> tuple[QualifiedName, ...]:
        """Those of ``names`` that were asked for, and are not in the lake."""
        return tuple(name for name in names if name not in self.states and name not in self.errors)

    def state_of(self, name: QualifiedName) -> TableState | None:
        """The table's state by its own log and the latest cut; None if there is none of this slot. Raises LakeError."""
        if name == MESSAGES_NAME:
            state = messages_state(self.lake, self.identity)
            return None if state is None else self.known(state)
        state = table_state(self.lake, name, self.identity)
        if state is None:
            return None
        shown = self.cut.table(name) if self.cut else None
        if shown is not None:
            noted_if_lost(self.lake.table(name), state, shown)
        return self.known(state)

    def known(self, state: TableState) -> TableState:
        """``state``, read from the table's own commits, brought up to date with the cut: windows that did not change
        the table left no commit in it.

        The two are compared by generation and by our commits, not by Delta version: an OPTIMIZE makes versions that
        show the same rows. The state of a table that has lost a commit is not changed: what it lost is applied again.
        """
        shown = self.cut.table(state.name) if self.cut else None
        if self.cut is None or shown is None or shown.generation != str(state.generation):
            return state
        if state.has_lost(shown.commits, shown.last_commit):
            return state
        return replace(state, ordinal=max(state.ordinal, self.cut.ordinal), relid=shown.relid)

    def _as_in_cut(self, names: Sequence[QualifiedName]) -> dict[QualifiedName, TableState]:
        """The states of the tables that need not be opened."""
        cut, lake = self.cut, self.lake
        if cut is None:
            return {}
        listed = {lake.table(name): table for name in names if name != MESSAGES_NAME and (table := cut.table(name))}
        with lake_errors(f"the tables at {lake.path} cannot be listed"):
            folders = existing_folders(list(listed))
        shown = [table for folder, table in listed.items() if folder in folders]
        checked = {table.name: table for table in _to_check(shown, cut)}
        still = ask_tables(lambda name: _is_as_in_cut(lake, checked[name]), tuple(checked))
        return {table.name: state_in_cut(cut, table) for table in shown if still.get(table.name, True) is True}


def _to_check(tables: Sequence[TableCut], cut: Cut) -> Sequence[TableCut]:
    """The tables to check now; one may be there twice. If no cut is old, after ``_TURNS`` cuts it was the turn of
    all."""
    if cut.written_at is None or datetime.now(UTC) - cut.written_at > _OLD:
        return tables
    count = ceil(len(tables) / _TURNS)
    first = cut.number * count % max(1, len(tables))
    last = max((table.commit_cut or 0 for table in tables), default=0)
    written = [table for table in tables if table.commit_cut == last]
    at = int(datetime.now(UTC).timestamp()) // 60 * _WRITTEN % max(1, len(written))
    return (*(*tables, *tables)[first : first + count], *(*written[at:], *written[:at])[:_WRITTEN])


def _is_as_in_cut(lake: Lake, table: TableCut) -> bool:
    if table.last_commit is None:  # written by an earlier version: once the table is opened, the next cut has it
        return False
    with table_errors(f"{table.name} cannot be read"):
        return is_as_known(lake.table(table.name), table.version, table.last_commit)


def concerns(marker: WindowMarker, state: TableState) -> bool:
    """Whether the window holds anything that may affect the table: changes of it, also under another name; changes of
    another table with its name; messages of unknown type; a change without a row event; a comment on it; or a new
    chapter."""
    if marker.ordinal <= state.ordinal:
        return False
    name, relid = state.relation, state.relid
    if marker.counts_of(relid, name):
        return True
    return tells_of(marker, name, relid) or is_annotated(marker, relid) or bool(unknown_messages(marker, name, relid))


def cut_at(last: WindowMarker, state: TableState) -> TableCut | None:
    """The table's entry in a cut at the end of window ``last``; None when its newest version does not show that LSN."""
    beyond = state.ordinal > last.ordinal or state.snapshot_lsn > last.window.hi
    return None if beyond or state.relid is None else entry_in_cut(state, state.relid)
