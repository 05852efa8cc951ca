"""The work on one table: the landed windows to apply to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.change_log.window_marker import RelationCounts, SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import LakeError, SchemaChangeError, new_snapshot
from spark_jobs.lake.table_state import TableState, noted_if_lost, table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.spark.session_conf import runs_on_driver
from spark_jobs.storage import Location
from spark_jobs.tables.catalogue_changes import another_table, column_changes_of, is_annotated, is_of_another
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow.opened_table import OpenedTable, file_bytes, opened_table

if TYPE_CHECKING:
    from spark_jobs.apply.regions_read import RegionsRead


@dataclass(frozen=True)
class TableRange:
    """``markers``: landed windows in order, without a gap, at least one. ``state``: the table's state before them.
    ``before``: where the last window is only applied in part, transactions that committed at or after this LSN are left
    out. ``regions``: the rows that are read again at the end of the last window. ``columns``: the numbers of the
    columns that the table is to have after a rebuild; None: as the policy says. ``opened``: the Delta table, if this
    process computes the net change, and can open it. ``in_turn``: a part of a larger range, by ``first_in_turn``."""

    run: Run
    state: TableState
    markers: Sequence[WindowMarker]
    before: Lsn | None = None
    regions: RegionsRead | None = None
    columns: frozenset[int] | None = None
    opened: OpenedTable | None = None
    in_turn: bool = False

    @property
    def pipeline(self) -> Pipeline:
        return self.run.pipeline

    @property
    def name(self) -> QualifiedName:
        return self.state.name

    @cached_property
    def relid(self) -> int:
        """The table's OID: its snapshot's, or else that of the first relation in these windows that has its name."""
        counts = (counts for marker in self.markers for counts in marker.relations)
        return self.state.relid or next((each.relid for each in counts if self._is_named(each)), 0)

    def concerns_table(self) -> bool:
        """Whether these windows hold anything about the table. Raises SchemaChangeError when the snapshotted table was
        renamed, or when another table now has its name."""
        counted = False
        for marker in self.markers:
            for counts in marker.counts_of(self.relid, self.name):
                if is_of_another(counts, self.name, self.relid):
                    raise another_table(marker, self.name, hint=self._corrected)
                if not self._is_named(counts):
                    what = f"{self.name} was renamed, in window {marker.ordinal} ({marker.window})"
                    raise SchemaChangeError(what, hint=self._corrected)
                counted = True
        return counted or any(each.relid == self.relid for each in column_changes_of(self.markers, self.state))

    @property
    def _corrected(self) -> str:
        return f"correct tables: in the configuration if need be, then {new_snapshot(self.name)}"

    def annotations(self, *, anew: bool) -> TableAnnotations | None:
        """What the source said about the table at the end of the range; None if it is not known, or, unless it is to be
        written ``anew``, if it is what it was before."""
        catalogue = self.last.catalogue
        if catalogue is None or not (anew or any(is_annotated(marker, self.relid) for marker in self.markers)):
            return None
        return self.run.log.annotations(self.relid, catalogue.window)

    def _is_named(self, counts: RelationCounts) -> bool:
        relation = self.state.relation
        return counts.relname == relation.relname and counts.nspname == relation.nspname

    @property
    def path(self) -> Location:
        """The path of the Delta table."""
        return self.pipeline.lake.table(self.name)

    @property
    def first(self) -> WindowMarker:
        return self.markers[0]

    @property
    def last(self) -> WindowMarker:
        return self.markers[-1]

    @property
    def windows(self) -> str:
        """Their ordinals, for messages."""
        return f"windows {self.first.ordinal} to {self.last.ordinal}"

    @property
    def identity(self) -> SlotIdentity:
        return self.last.identity

    @property
    def policy(self) -> SchemaPolicy:
        """What happens to the table when its columns change."""
        return self.pipeline.schema_policy(self.name)

    def adds(self, attnum: int) -> bool:
        """Whether the table gets this column, which it lacks."""
        return self.policy.add != "ignore" if self.columns is None else attnum in self.columns

    def keeps(self, attnum: int) -> bool:
        """Whether the table keeps this column, which the source has no longer. ``stop`` is about further columns."""
        if self.columns is not None:
            return attnum in self.columns
        kept = attnum in self.state.differing.kept_numbers
        return self.policy.drop == "keep" or (self.policy.drop == "stop" and kept)

    def state_since(self) -> TableState | None:
        """The table's state, as its own log has it now; None where there is no table of this slot."""
        return table_state(self.pipeline.lake, self.name, self.identity)

    def state_now(self) -> TableState:
        """The current state: another process may have written the table since ``state`` was read. Raises LakeError if
        the table is gone."""
        now, known = self.state_since(), self.state
        if now is None:
            raise LakeError(f"{self.name}: its Delta table is gone", hint="run it again: it takes a new snapshot")
        if noted_if_lost(self.path, now, known) or now.generation != known.generation:
            return now
        # the cut may know of later windows, without changes, that left no commit in the table
        return replace(now, ordinal=max(now.ordinal, self.state.ordinal))

    def after(self, state: TableState) -> TableRange | None:
        """What is left of the range for a table at ``state``; None if nothing is. It begins before the range if another
        process has put an older snapshot in the table's place."""
        markers = self.markers
        if state.ordinal + 1 < self.first.ordinal:
            landed = self.run.log.markers(state.ordinal)
            markers = tuple(marker for marker in landed if marker.ordinal <= self.last.ordinal)
        ahead = tuple(marker for marker in markers if marker.ordinal > state.ordinal)
        in_turn = self.in_turn and markers is self.markers
        return replace(self, state=state, markers=ahead, in_turn=in_turn) if ahead else None

    def with_open_table(self, version: int | None = None) -> TableRange:
        """With the Delta table open at its newest version, if the range is small. ``version``: the one that was the
        newest a moment ago."""
        return replace(self, opened=opened_table(self.path, version) if self.is_small else None)

    @property
    def is_small(self) -> bool:
        """Whether the net change is computed on the driver: it has few bytes, or few rows for its bytes. A value of 200
        MB would be whole in a Python worker and several times in a JVM, too, where the default heap is too small."""
        return self.in_turn or self.pipeline.writes.are_for_driver(self.changes.rows, self.bytes)

    @property
    def may_be_in_turn(self) -> bool:
        """Whether this process may apply it a few windows at a time, where executors would be on this machine. Not if
        the source's columns changed: what a look at the catalogue found may lie in a later window."""
        is_whole = self.before is None and self.regions is None and self.columns is None
        is_ours = self.pipeline.merge_engine == "auto" and runs_on_driver(self.pipeline.spark)
        return is_ours and is_whole and not column_changes_of(self.markers, self.state)

    def first_in_turn(self) -> TableRange:
        """The first windows, if this process applies the range a few windows at a time, in less time than executors
        take for the whole; else the whole range."""
        if self.is_small or not self.may_be_in_turn:
            return self
        writes, counts = self.pipeline.writes, range(1, len(self.markers) + 1)
        beginnings = (replace(self, markers=self.markers[:count], in_turn=True) for count in counts)
        fitting = [*takewhile(lambda each: writes.are_for_a_turn(each.changes.rows, each.bytes), beginnings)]
        table = opened_table(self.path) if fitting else None
        is_rewritten_soon = table is not None and file_bytes(table.files) <= writes.in_passing_bytes
        return fitting[-1] if is_rewritten_soon else self

    @property
    def is_for_spark(self) -> bool:
        """Whether it is certain, before the net change is known, that Spark writes it."""
        return self.opened is None or self.pipeline.merge_engine == "spark"

    @property
    def bytes(self) -> int:
        """Total length of the table's messages in these windows, by the markers alone."""
        return sum(counts.bytes for counts in self._counts)

    @property
    def changes(self) -> ChangeCounts:
        """The number of the table's changes in these windows, by the markers alone."""
        return sum((counts.changes for counts in self._counts), NO_CHANGES)

    @property
    def _counts(self) -> Iterator[RelationCounts]:
        return (counts for marker in self.markers for counts in marker.counts_of(self.relid))

    def columns_provenance(self, columns: Sequence[str]) -> Provenance:
        """The provenance of a commit that changes only the columns, ahead of the range's own: the table still shows the
        same window."""
        whole = self.provenance(NO_CHANGES, columns)
        lo = self.first.window.lo
        return replace(whole, first=self.state.ordinal, last=self.state.ordinal, lo=lo, hi=lo)

    def provenance(self, changes: ChangeCounts, columns: Sequence[str] = ()) -> Provenance:
        """The provenance of the commit that brings the table to the end of the range."""
        ends = self.first.ordinal, self.last.ordinal, self.first.window.lo, self.last.window.hi
        following = Provenance.following(self.state, self.identity, self.relid, *ends, self.run.run_id)
        return replace(following, changes=changes, columns=tuple(columns))
