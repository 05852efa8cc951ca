"""What a snapshot is made of: the tables, what they are at its LSN, and how each is read and recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from psycopg import sql

from spark_jobs.change_log.window_marker import first_missing
from spark_jobs.configuration import Adopted, Table
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.options.column_options import ColumnOptions
from spark_jobs.options.table_layout import NO_LAYOUT
from spark_jobs.options.table_mode import Form, keeps_past
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, clock_microseconds
from spark_jobs.postgres.fingerprints import fingerprints
from spark_jobs.postgres.published_tables import PublishedTable, published_tables
from spark_jobs.postgres.source_tables import SourceTable, source_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.differing_columns import added_since
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import mode_fault, option_fault
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.export import (
    RANGE_BYTES,
    RANGES_FOR_EXECUTORS,
    AppliedLater,
    CtidRange,
    ExportedSnapshot,
    ctid_ranges,
    rows_from,
    rows_query,
)
from spark_jobs.snapshot.snapshot_budget import next_cause
from spark_jobs.snapshot.snapshot_work import SnapshotWork
from spark_jobs.snapshot.table_read import SnapshotSource, TableRead
from spark_jobs.spark.session_conf import runs_on_driver
from spark_jobs.storage import Location
from spark_jobs.tables.catalogue_changes import is_of_earlier_chapter
from spark_jobs.tables.configured_otherwise import shows_another
from spark_jobs.tables.refused_changes import refused_columns
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow.opened_table import opened_table
from spark_jobs.writers.with_spark.delta_table import table_columns
from spark_jobs.writers.write_choice import Engine, snapshot_writer


@dataclass(frozen=True)
class SeenTable:
    """A source table as one snapshot shows it; what is altered later shows in the next fingerprint. Without a table of
    that name there is none of these."""

    at: int  # the server's clock, in microseconds since 1970, UTC
    fingerprint: Fingerprint | None
    published: PublishedTable | None
    existing: SourceTable | None
    facts: RelationFacts | None
    ranges: tuple[CtidRange, ...]


def look(connection: Connection, work: SnapshotWork) -> dict[QualifiedName, SeenTable]:
    """What ``connection`` shows of the tables, in a transaction of one snapshot; by the names of the lake's."""
    watched = work.watched
    prints = fingerprints(connection, watched)
    published = published_tables(connection, watched.publications, watched.names) if watched.publications else {}
    tables = relation_facts(connection, names=watched.names, keys=watched.keys, masks=watched.masks)
    facts = {table.name: table for table in tables}
    ranges = {name: _divided(connection, work, known.relid) for name, known in facts.items()}
    existing, at = source_tables(connection, watched.names), clock_microseconds(connection)
    return {
        name: SeenTable(at, prints.get(of), published.get(of), existing.get(of), facts.get(of), ranges.get(of, ()))
        for name in work.names
        for of in [work.pipeline.relation(name)]
    }


def _divided(connection: Connection, work: SnapshotWork, relid: int) -> tuple[CtidRange, ...]:
    if work.chunk_bytes is not None:
        return ctid_ranges(connection, relid, work.chunk_bytes, with_toast=True)
    least = 1 if runs_on_driver(work.pipeline.spark) else RANGES_FOR_EXECUTORS
    return ctid_ranges(connection, relid, RANGE_BYTES, least)


@dataclass(frozen=True)
class TableToRead:
    """One table of ``work``, to be read in ``exported``."""

    work: SnapshotWork
    exported: ExportedSnapshot
    name: QualifiedName
    seen: SeenTable

    @property
    def configured(self) -> Table:
        return self.work.pipeline.table(self.name)

    @property
    def options(self) -> ColumnOptions:
        return self.work.pipeline.column_options(self.name)

    @property
    def sent(self) -> PublishedTable | None:
        return self.seen.published

    def planned_read(self) -> TableRead:
        """How it is read. Raises PreconditionError when it does not exist or cannot be followed."""
        ranges = () if self.configured.begins_empty else self.seen.ranges
        if self.seen.existing is not None and self.seen.existing.fault:
            raise self.seen.existing.fault
        facts = self.seen.facts
        described, mask = self.described if facts else None, self.work.watched.masks.get(self.configured.relation)
        ignored = self._ignored(facts) if facts else frozenset[int]()
        applied: AppliedLater = "changes" if self.work.chunk_bytes is None else "changes_of_each"
        read = TableRead.of(self.name, described, ranges, self.sent, applied=applied, mask=mask, ignored=ignored)
        sent = [column.name for column in read.shape.columns]
        form, options = self.form, self.options
        if facts and (fault := mode_fault(facts, sent, form) or option_fault(facts, sent, options, form.mode)):
            raise fault
        return read

    @property
    def adopts(self) -> Adopted | None:
        """The table of another tool whose rows it takes, if it has none yet."""
        adopted = self.configured.adopt
        return adopted if adopted is not None and self.state() is None else None

    @property
    def row_filter(self) -> str:
        """The condition for the rows that are published, empty for all."""
        return self.sent.row_filter if self.sent is not None else ""

    @property
    def described(self) -> RelationFacts:
        """What the catalogue says of a table that exists."""
        assert self.seen.facts is not None
        return with_options(self.seen.facts, self.options)

    def _ignored(self, facts: RelationFacts) -> frozenset[int]:
        """The numbers of the columns that were added since the table's first snapshot, if they are kept out of the
        lake."""
        if self.work.pipeline.schema_policy(self.name).add != "ignore" or (before := self.state()) is None:
            return frozenset()
        return added_since(facts, self._lake_columns(before), by_number=self.is_of_same_table(before))

    def is_of_same_table(self, before: TableState) -> bool:
        """Whether the lake's table was made from this very table, so that its attribute numbers mean the same."""
        if before.relid != self.described.relid:
            return False
        if not is_of_earlier_chapter(before, self.work.checkpoint.identity.chapter):
            return True
        since = self.work.run.log.markers(before.ordinal)
        return first_missing(before.ordinal, since) is None and all(marker.has_same_catalogue for marker in since)

    def _lake_columns(self, before: TableState) -> Sequence[DeltaColumn]:
        """The columns of the lake's table."""
        opened = opened_table(self.path, before.version)
        return opened.columns if opened is not None else table_columns(self.work.run.spark(), self.path)

    @property
    def form(self) -> Form:
        return self.configured.form

    @property
    def mask(self) -> str:
        """The word of the table's masks, empty without any."""
        return self.seen.facts.mask if self.seen.facts is not None else ""

    @property
    def path(self) -> Location:
        return self.work.pipeline.lake.table(self.name)

    def state(self) -> TableState | None:
        """The Delta table as it is now. Raises LakeError if it shows another source table."""
        pipeline = self.work.pipeline
        state = table_state(pipeline.lake, self.name, self.work.checkpoint.identity)
        if state is not None and (error := shows_another(pipeline, state)):
            raise error
        return state


@dataclass(frozen=True)
class PlannedTable(TableToRead):
    """A table, and how it is ``read``. ``began``: when the reading of an automatic snapshot began; None: now."""

    read: TableRead
    began: datetime | None = None

    @classmethod
    def of(cls, table: TableToRead, began: datetime | None = None) -> PlannedTable:
        """Raises as ``planned_read`` does."""
        return cls(table.work, table.exported, table.name, table.seen, table.planned_read(), began)

    def rows_where(self, condition: sql.Composable) -> str:
        """The query for those of the table's rows that meet ``condition``."""
        columns, relation = [column.name for column in self.read.columns], self.configured.relation
        is_whole = all(part.leaf == relation for part in self.seen.ranges)
        named = sql.SQL("ONLY {}" if is_whole else "{}").format(sql.Identifier(relation.nspname, relation.relname))
        return rows_query(self.described, columns, rows_from(named, condition, self.row_filter))

    @property
    def written(self) -> TableShape:
        """The table as it is written."""
        shape = self.read.shape.with_commit_columns(self.form.commit_columns)
        return replace(shape, annotations=self.annotations)

    @property
    def annotations(self) -> TableAnnotations | None:
        return self.seen.fingerprint.annotations if self.seen.fingerprint is not None else None

    def goes_on_from(self, before: TableState) -> bool:
        """Whether the table's history is kept: its mode keeps one, and mode, types and masks are as in ``before``."""
        mode, was = self.form.mode, before.generation
        return keeps_past(mode) and (before.mode, was.types, was.mask) == (mode, self.options.types, self.mask)

    @property
    def failed(self) -> str:
        return f"{self.name}: snapshot at {self.exported.lsn} failed"

    @property
    def writer(self) -> Engine:
        """What writes it: the driver's process reads it, too, and executors do where Spark writes a large table."""
        pipeline = self.work.pipeline
        if self.options.layout != NO_LAYOUT:
            return "spark"
        return snapshot_writer(pipeline.merge_engine, pipeline.spark, is_small=self.read.is_small)

    @property
    def source(self) -> SnapshotSource:
        """Where this process reads it."""
        return SnapshotSource(self.work.connect, self.exported.snapshot_name)

    @property
    def moment(self) -> Moment:
        return Moment(self.exported.lsn, self.seen.at)

    def require_accepted(self, before: TableState) -> None:
        """Raises RefusedChangeError if the snapshot would change columns in a way that the configuration refuses."""
        policy = self.work.pipeline.schema_policy(self.name)
        if self.work.asked or not policy.refused_in_snapshots:
            return
        lake_columns, kept = self._lake_columns(before), before.differing.kept_numbers
        # with other chosen types or masks the lake's types differ whatever the source did
        types = (before.generation.types, before.generation.mask) == (self.options.types, self.mask)
        by_number = self.is_of_same_table(before)
        where = f"at {self.exported.lsn}"
        refused = refused_columns(
            lake_columns, self.read.shape, policy, where, types=types, by_number=by_number, kept=kept
        )
        if refused is not None:
            raise refused.within(self.reason) if self.reason else refused

    def provenance(self, before: TableState | None) -> Provenance:
        """The provenance of the commit that replaces the state ``before``."""
        word = self.seen.fingerprint.word if self.seen.fingerprint is not None else ""
        missing = self.sent.missing_operations if self.sent is not None else ()
        generation = Generation(
            self.exported.lsn,
            word,
            tuple(missing),
            types=self.options.types,
            mask=self.mask,
            shows=self.configured.shows,
            is_empty=self.configured.begins_empty,
        )
        return Provenance(
            *self.work.checkpoint.identity.stream,
            generation.in_form(self.form),
            first=self.work.checkpoint.ordinal,
            last=self.work.checkpoint.ordinal,
            lo=self.exported.lsn,
            hi=self.exported.lsn,
            relid=self.read.shape.relid,
            commits=before.commits + 1 if before else 1,
            run_id=self.work.run.run_id,
            cause=next_cause(before.cause if before else None, self.reason, self.began) if self.reason else None,
            differing=self.read.differing,
        )

    @property
    def reason(self) -> str:
        return self.work.reasons.get(self.name, "")
