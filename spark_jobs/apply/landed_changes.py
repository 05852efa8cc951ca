"""The changes of one table in a range of windows, as the change log holds them, ready to be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import TableChanged
from spark_jobs.delta.counted_files import rows_where
from spark_jobs.errors import DecodeError, SchemaChangeError, new_snapshot
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.relation import RelationColumn
from spark_jobs.options.column_options import ColumnOptions
from spark_jobs.options.table_mask import why_masked_otherwise
from spark_jobs.options.table_mode import holds_changes
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.column_changes import ColumnChanges, DeltaColumn, column_changes
from spark_jobs.schema.differing_columns import DifferingColumns, shape_in_lake
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_facts import RelationFacts, landed_facts
from spark_jobs.schema.relation_version import NO_ATTNUM, KnownColumn, RelationVersion, sent_columns
from spark_jobs.schema.table_faults import mode_fault, option_fault
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.tables.catalogue_changes import column_changes_of

_CHANGES = pa.array([kind.value for kind in (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE, RowKind.TRUNCATE)])
_OF_CHANGES = ("commit_lsn", "ordinal", "xid", "commit_time", "kind", "version", "data")


@dataclass(frozen=True)
class LandedChanges:
    """``rows``: change-log rows of kinds I, U, D and T, unordered; only those of kind T where executors read the rest.

    ``rules``: by which they become a net change, in the ``shape`` that the table has at the end of the range.
    ``columns``: the changes that give the lake's table this shape. ``differing``: the columns in which it differs from
    the source then. ``words``: what happens to the columns, a phrase for each.
    """

    rows: pa.Table
    rules: NetRules
    columns: ColumnChanges
    differing: DifferingColumns
    words: tuple[str, ...]

    @property
    def shape(self) -> TableShape:
        return self.rules.shape

    def without_rows(self) -> LandedChanges:
        """The description alone, once nobody needs the rows, of which there may be many."""
        return replace(self, rows=self.rows.schema.empty_table())


def landed_changes(work: TableRange, lake_columns: Sequence[DeltaColumn]) -> LandedChanges | None:
    """The changes in the range that the table's snapshot does not show; None when there are none.

    ``lake_columns``: the columns of the lake's table. Raises DecodeError when the log lacks the description of the
    changes, SchemaChangeError where only a new snapshot helps.
    """
    rows = work.run.log.read([work.relid], work.first.ordinal, work.last.ordinal, ["window", *_OF_CHANGES])
    landed = described_changes(rows, work, lake_columns)
    return landed if landed is not None and (landed.rows.num_rows or landed.words) else None


def described_changes(landed: pa.Table, work: TableRange, lake_columns: Sequence[DeltaColumn]) -> LandedChanges | None:
    """``landed``: the table's rows of the change log, with or without row changes. Returns None when they hold nothing
    that came after the snapshot."""
    state = work.state
    if work.before is not None:
        landed = landed.filter(pc.less(landed.column("commit_lsn"), int(work.before)))
    kinds = landed.column("kind")
    changes = _changes(landed, state.snapshot_lsn)
    order = [("window", "ascending"), ("commit_lsn", "ascending"), ("ordinal", "ascending")]
    relations = landed.filter(pc.equal(kinds, RowKind.RELATION.value)).sort_by(order)
    facts = landed.filter(pc.equal(kinds, RowKind.FACTS.value)).sort_by(order)
    if not facts.num_rows:
        if not changes.num_rows:
            return None
        raise DecodeError(
            f"the change log does not describe {state.name} in {work.windows}",
            hint=f"the log's retention has removed a part of these windows; {new_snapshot(state.name)}",
        )
    messages = dict(zip(relations.column("version").to_pylist(), relations.column("data").to_pylist(), strict=True))
    of_latest = facts.filter(pc.equal(facts.column("data"), facts.column("data")[-1]))
    lsn = Lsn(max(pc.min(of_latest.column("commit_lsn")).as_py(), int(state.snapshot_lsn)))
    # with the types of the table, even if the configuration has others by now
    options = replace(work.pipeline.column_options(state.name), types=state.generation.types)
    latest_last = landed_facts(facts.column("data").to_pylist(), state.name)
    described = _Description(latest_last, lake_columns, column_changes_of(work.markers, state), options, work)
    _require_masked_alike(described.facts, work)
    shape, differing = described.shape(list(dict.fromkeys(reversed(relations.column("data").to_pylist())))[::-1])
    names, types = [column.name for column in shape.columns], ColumnOptions(state.generation.types)
    latest, mode = described.latest, state.mode
    if fault := mode_fault(latest, names, state.generation.form) or option_fault(latest, names, types, mode):
        raise fault
    versions = {version: described.version(message, shape) for version, message in messages.items()}
    columns = column_changes(lake_columns, shape, described.latest, described.added, lsn)
    words = (*columns.words, *differing.words_since(state.differing))
    lenient = bool(state.generation.missing_operations)
    rules = NetRules(shape, versions, mode, (), lenient, state.generation.commit_columns)
    return LandedChanges(changes, rules, columns, differing, words)


def _changes(landed: pa.Table, since: Lsn) -> pa.Table:
    """The changes that committed at or after ``since``: the snapshot shows the others. Messages are copied once at
    most, into the one buffer that they are decoded from."""
    batches = []
    for rows in landed.select(_OF_CHANGES).to_batches():
        later = pc.greater_equal(rows.column("commit_lsn"), int(since))
        batches.append(rows_where(pc.and_(pc.is_in(rows.column("kind"), _CHANGES), later), rows))
    return pa.Table.from_batches(batches, landed.select(_OF_CHANGES).schema).combine_chunks()


def _require_masked_alike(facts: Sequence[RelationFacts], work: TableRange) -> None:
    """Keep plain values and hashes apart: these windows may have been landed under another configuration of masks."""
    for landed in facts:
        if why := why_masked_otherwise(work.state.generation.mask, landed.mask):
            raise SchemaChangeError.because(work.name, f"{why} ({work.windows})")


@dataclass(frozen=True)
class _Description:
    """What is known about the table's columns in a range. ``facts``: the catalogue's, oldest first. ``held``: the
    lake's columns. ``looks``: what the looks at the catalogue found changed. ``options``: those of the lake's table.
    ``work``: which of the source's columns are left out of it, and which of its own it keeps."""

    facts: tuple[RelationFacts, ...]
    held: Sequence[DeltaColumn]
    looks: tuple[TableChanged, ...]
    options: ColumnOptions
    work: TableRange

    @property
    def latest(self) -> RelationFacts:
        return self.facts[-1]

    @property
    def added(self) -> frozenset[int]:
        return frozenset(number for look in self.looks for number in look.added)

    def shape(self, messages: Sequence[bytes]) -> tuple[TableShape, DifferingColumns]:
        """The table at the end of the range: those of the catalogue's columns that the lake or the last Relation
        message has, or that were added, without those that are left out of the lake, and with dropped columns that it
        keeps. A message that fits no description is ignored here; changes that need it are refused when they are
        decoded."""
        versions = [sent_columns(message, self._descriptions, self._first) for message in messages]
        names = {column.name for column in self.held if column.attnum is None}
        lake_numbers = {column.attnum for column in self.held if column.attnum is not None}
        lake_numbers |= {column.attnum for column in self.latest.columns if column.attname in names}
        sent = (
            lake_numbers
            | set(versions[-1] if versions else ())
            | self.added
            | self.work.state.differing.ignored_numbers
        )
        shape = TableShape.of(with_options(self.latest, self.options), name=self.work.name, sent=sent)
        ignored = {number for number in sent - lake_numbers if not self.work.adds(number)}
        on_wire = {number: column for version in versions for number, column in version.items()}
        kept = [
            replace(_kept(column, number, on_wire.get(number)), on_unrepresentable=self.options.policy)
            for column, number in self._dropped
            if self.work.keeps(number)
        ]
        if holds_changes(self.work.state.mode):  # a change says what it said then
            shape = replace(shape, columns=tuple(replace(column, missing=None) for column in shape.columns))
        return shape_in_lake(shape, ignored, kept, self.work.state.mode)

    def version(self, message: bytes, shape: TableShape) -> RelationVersion:
        return RelationVersion.of(message, shape, self._descriptions, self.added, self._gone, self._first)

    @property
    def _dropped(self) -> list[tuple[DeltaColumn, int]]:
        """The lake's columns that the source has no longer, with their numbers."""
        now = {column.attnum for column in self.latest.columns}
        return [
            (column, column.attnum) for column in self.held if column.attnum is not None and column.attnum not in now
        ]

    @property
    def _gone(self) -> frozenset[int]:
        """The kept columns that were dropped before the range: a column of such a name in a message is another one."""
        return self.work.state.differing.kept_numbers

    @property
    def _first(self) -> Sequence[KnownColumn]:
        """The columns that each Relation message of the range begins with: those of the lake, if the source has all of
        them, and no other among them. Empty where the table would get the columns that follow."""
        numbers = {column.attnum for column in self.held} - self._gone
        last = max((number for number in numbers if number is not None), default=0)
        now = sorted((column for column in self.latest.columns if column.attnum <= last), key=lambda each: each.attnum)
        if self.work.adds(NO_ATTNUM) or {column.attnum for column in now} != numbers:
            return ()
        return tuple(map(KnownColumn.of, now))

    @property
    def _descriptions(self) -> tuple[tuple[KnownColumn, ...], ...]:
        by_facts = (tuple(map(KnownColumn.of, facts.columns)) for facts in self.facts)
        by_lake = tuple(
            KnownColumn(column.attnum, column.name)
            for column in self.held
            if column.attnum is not None and column.attnum not in self._gone
        )
        return (*by_facts, by_lake)


def _kept(column: DeltaColumn, attnum: int, sent: RelationColumn | None) -> LakeColumn:
    """A dropped column of the lake. ``sent``: as the last Relation message describes it that has it."""
    known = LakeType.of_sql(column.sql) or LakeType(LakeKind.STRING)
    atttypid, atttypmod = (sent.atttypid, sent.atttypmod) if sent is not None else (0, -1)
    return LakeColumn(column.name, attnum, known, key=False, atttypid=atttypid, atttypmod=atttypmod, dropped=True)
