"""Plan how the rows of regions are read in an exported snapshot: from which leaves, and whether that is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import pyarrow as pa
from psycopg import sql

from spark_jobs.apply.regions_read import RegionsRead
from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import SchemaChangeError
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, clock_microseconds, connected
from spark_jobs.postgres.fingerprints import Watched, fingerprints
from spark_jobs.postgres.published_tables import PublishedTable, published_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.fingerprint_differences import differences
from spark_jobs.schema.misfits import Misfits
from spark_jobs.schema.partition_bounds import LISTED_TYPES, BoundColumn, Region
from spark_jobs.schema.region_conditions import in_postgres
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.snapshot.export import ExportedSnapshot, ctid_ranges
from spark_jobs.snapshot.table_read import MisfitsRead, SnapshotSource, TableRead
from spark_jobs.tables.catalogue_changes import regions_changed
from spark_jobs.writers.with_spark.staged_misfits import NotedFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class TablesSeen:
    """Source tables as the exported snapshot shows them. ``landed``: their fingerprints by the look of the window that
    ends at the snapshot's LSN."""

    now: Mapping[QualifiedName, Fingerprint]
    landed: Mapping[QualifiedName, Fingerprint]
    published: Mapping[QualifiedName, PublishedTable]
    facts: Mapping[QualifiedName, RelationFacts]

    @classmethod
    def of(cls, connection: Connection, watched: Watched, log: ChangeLog, last: WindowMarker) -> TablesSeen:
        """``connection`` is in the snapshot's transaction; window ``last`` ends at the snapshot's LSN."""
        relations = relation_facts(connection, names=watched.names, keys=watched.keys, masks=watched.masks)
        return cls(
            fingerprints(connection, watched),
            {fingerprint.name: fingerprint for fingerprint in log.last_look(last)},
            published_tables(connection, watched.publications, watched.names),
            {facts.name: facts for facts in relations},
        )


@dataclass(frozen=True)
class RegionPlan:
    """Read the regions that changed in the windows of ``work`` in the snapshot ``exported``."""

    work: TableRange
    exported: ExportedSnapshot
    watched: Watched

    @property
    def pipeline(self) -> Pipeline:
        return self.work.pipeline

    @property
    def name(self) -> QualifiedName:
        return self.work.name

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        return regions_changed(self.work.markers, self.work.state)

    @property
    def _reason(self) -> str:
        """What happened to the partitions, as the windows' looks say."""
        looks = (marker.catalogue.changed for marker in self.work.markers if marker.catalogue is not None)
        of_table = (table for changed in looks for table in changed if table.name == self.work.state.relation)
        return "; ".join(dict.fromkeys(reason for table in of_table for reason in table.reasons))

    def read(self, connection: Connection, tables: TablesSeen) -> RegionsRead:
        """``connection`` is in the snapshot's transaction. Raises SchemaChangeError if rows outside the regions may
        differ too, or source and lake might disagree on which rows are inside."""
        relation = self.pipeline.relation(self.name)
        facts, sent = tables.facts.get(relation), tables.published.get(relation)
        now, landed = tables.now.get(relation), tables.landed.get(relation)
        if facts is None or sent is None or now is None or landed is None:
            raise SchemaChangeError.because(self.name, "it is not there, or not published")
        # if the window's look has seen a change that the snapshot does not show, no later look will report it again
        if _differ(now, landed):
            raise SchemaChangeError.because(self.name, "it was altered again meanwhile")
        described = with_options(facts, self.pipeline.column_options(self.name))
        columns = {column.attnum: column.attname for column in facts.columns}
        filters = [f"({sent.row_filter})"] if sent.row_filter else []
        within = in_postgres(self.regions, lambda column: sql.Identifier(columns[column.attnum]).as_string(None))
        of_regions = replace(sent, row_filter=" AND ".join([*filters, f"({within})"]))
        ranges = [each for leaf in self._leaves(now) for each in ctid_ranges(connection, leaf)]
        ignored = self.work.state.differing.ignored_numbers
        read = TableRead.of(self.name, described, ranges, of_regions, applied="nothing", ignored=ignored)
        self._require_plain_keys(read.shape)
        return RegionsRead(
            self.regions,
            self.exported.lsn,
            clock_microseconds(connection),
            read.shape,
            self._reason,
            partial(self._values, read),
            partial(self._values_on_driver, read),
            partial(self._require_unaltered, now),
        )

    def _leaves(self, now: Fingerprint) -> list[int]:
        """The OIDs of the leaves that may hold rows of the regions, which may include a DEFAULT partition."""
        relids = []
        for part in now.leaves:
            bounds = now.bounds(part)
            if not all(region.is_apart_from(bounds) for region in self.regions):
                relids.append(part.relid)
        return relids

    def _values(self, read: TableRead, spark: SparkSession) -> NotedFrame:
        return read.noted_values(spark, SnapshotSource.anywhere(self.pipeline, self.exported.snapshot_name))

    def _values_on_driver(self, read: TableRead) -> tuple[pa.Table, Misfits] | None:
        source, noted = SnapshotSource.anywhere(self.pipeline, self.exported.snapshot_name), MisfitsRead()
        rows = read.values_on_driver(source, noted.note)
        return None if rows is None else (rows, noted.found)

    def _require_unaltered(self, then: Fingerprint) -> None:
        """Rows are read by the current names of columns and leaves."""
        with connected(self.pipeline.source.dsn) as connection:
            now = fingerprints(connection, self.watched).get(then.name)
        if now is None or _differ(then, now):
            raise SchemaChangeError.because(self.name, "it was altered while partitions of it were read")

    def _require_plain_keys(self, shape: TableShape) -> None:
        by_number = {column.attnum: column for column in shape.columns}

        def is_plain(column: BoundColumn) -> bool:
            shape_column = by_number.get(column.attnum)
            lake = LISTED_TYPES[column.typid][1]
            return (
                shape_column is not None
                and shape_column.key
                and shape_column.atttypid == column.typid
                and shape_column.lake_type.sql == lake
            )

        if not all(is_plain(column) for region in self.regions for column in region.columns):
            raise SchemaChangeError.because(
                self.name, "it is partitioned by a column that is not a plain column of its key"
            )


def _differ(before: Fingerprint, after: Fingerprint) -> bool:
    if before.word == after.word:
        return False
    changes = differences(before, after)
    return bool(changes.reasons or changes.moved_files or changes.columns)
