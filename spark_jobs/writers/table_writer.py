"""Write the net change of one table to its Delta table, in one commit, by the writer that ``write_choice`` names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from spark_jobs.configuration import MergeEngine, Pipeline
from spark_jobs.delta.commit import KnownCommit
from spark_jobs.delta.files import files_of
from spark_jobs.delta.written_tables import keep_at
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.storage import Location
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.table_commit import Provenance, commit_numbered, commit_without_rows
from spark_jobs.writers.with_arrow.arrow_writer import ArrowWriter
from spark_jobs.writers.with_arrow.kept_values import with_kept_values
from spark_jobs.writers.with_arrow.opened_table import FEATURES, OpenedTable, facts_of, facts_of_unopened
from spark_jobs.writers.with_arrow.plain_table import compact_smallest
from spark_jobs.writers.with_spark.spark_writer import SparkWriter
from spark_jobs.writers.write_choice import TableFacts, WriteWay, write_way


class TableWriter(Protocol):
    """Writes net changes to one Delta table: Spark does, and the driver's process with Arrow and ``deltalake``."""

    def write(self, net: NetSource, way: WriteWay, provenance: Provenance) -> int | None:
        """Commit a net change that is not empty in this way, in a commit that carries ``provenance`` and has its
        number, so that it is made once. Returns the Delta version; None if another writer has to do it.

        Raises OvertakenError when a writer of ours has committed since the table's state was read, and LakeError.
        """


@dataclass(frozen=True)
class WrittenTable:
    """The table ``name`` of ``pipeline``, and what may write it: Spark, and the driver's process if it has ``opened``
    the table. ``failed``: what to say if Spark fails."""

    pipeline: Pipeline
    name: QualifiedName
    spark: SparkProvider
    failed: str
    opened: OpenedTable | None = None

    @property
    def path(self) -> Location:
        return self.pipeline.lake.table(self.name)

    def facts(self, net: NetSource) -> TableFacts | None:
        if self.opened is not None:
            replaces = self.pipeline.merge_engine == "auto" and net.least == "merge"
            return facts_of(self.opened, net.columns, net.touched_range, replaces=replaces)
        return facts_of_unopened(self.path, net.columns)


@dataclass(frozen=True)
class Written:
    """The commit of ``provenance``, which made ``version``, and how it was written."""

    way: WriteWay
    version: int
    provenance: Provenance


def write_net(table: WrittenTable, net: NetSource, provenance: Provenance, *, compacts: bool = False) -> Written:
    """Commit a net change that is not empty. ``compacts``: a compaction of the table is due. Raises CdcError."""
    facts, limits = table.facts(net), table.pipeline.writes

    def way_of(net: NetSource, engine: MergeEngine) -> WriteWay:
        return write_way(net, facts, engine, limits, compacts=compacts)

    with files_of(table.name), provenance.recording(table.pipeline.lake, table.name, net.misfits) as recorded:
        whole, way = net, way_of(net, table.pipeline.merge_engine)
        if way.writer == "deltalake" and table.opened is not None and net.keeps_values:
            # with its kept values a change takes more memory: so its way is chosen again
            whole = with_kept_values(table.opened, net, limits) or net
            way = way_of(whole, table.pipeline.merge_engine)
        if way.writer == "deltalake" and table.opened is not None and not whole.keeps_values:
            written = _written(ArrowWriter(table.opened, limits), whole, way, recorded)
            if written is not None:
                if way.compacts:
                    compact_smallest(table.path, limits.in_passing_bytes)
                return written
        return _written_by_spark(table, net, way_of(net, "spark"), recorded)


def _written_by_spark(table: WrittenTable, net: NetSource, way: WriteWay, provenance: Provenance) -> Written:
    with spark_errors(table.failed, name=table.name, path=table.path):
        net.stage()
        layout = table.pipeline.table(table.name).options.layout
        written = _written(SparkWriter(table.spark(), table.path, layout), net, way, provenance)
    assert written is not None, "Spark writes everything"
    if table.opened is not None and not way.compacts:
        keep_at(table.opened.opened, KnownCommit(written.version, provenance.id))
    return written


def _written(writer: TableWriter, net: NetSource, way: WriteWay, provenance: Provenance) -> Written | None:
    provenance = replace(provenance, strategy=way.strategy)
    version = writer.write(net, way, provenance)
    return None if version is None else Written(way, version, provenance)


def record(table: WrittenTable, provenance: Provenance) -> int:
    """Make a commit that only records its provenance. Returns the Delta version. Raises CdcError."""
    opened = table.opened
    if opened is not None and opened.features <= FEATURES:
        version = commit_numbered(opened.opened, provenance)
        if version is not None:
            return version
    with spark_errors(table.failed, name=table.name, path=table.path):
        return commit_without_rows(table.spark(), table.path, provenance)
