"""What becomes one window's rows of the change log: what was sent, the catalogue's facts about it, and the marker."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.capture.catalogue_look import CatalogueLook
from spark_jobs.capture.leaf_announcements import identities_for_a_time, partitions_for_a_time, partitions_of_a_name
from spark_jobs.capture.masked_tables import MaskedTables, masked_alike
from spark_jobs.capture.period_ends import PeriodEnds
from spark_jobs.capture.plugin import WindowReader
from spark_jobs.capture.session import CaptureSession
from spark_jobs.capture.subtransactions import truncating_subtransactions
from spark_jobs.change_log.log import catalogue_rows, changed_facts_rows, facts_rows, marker_row
from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.schema.relation_version import relation_of
from spark_jobs.tables.followed_tables import followed_lines


@dataclass(frozen=True)
class WindowLanding:
    """What becomes one window's rows. ``tables``: those with masked columns. ``announced``: the relations that the call
    has announced for earlier windows, by relid: the server does not repeat those of partitions. ``changed``: of these,
    the ones that earlier windows have changes of."""

    session: CaptureSession
    window: Window
    reader: WindowReader
    look: CatalogueLook
    tables: MaskedTables | None
    periods: PeriodEnds | None
    announced: Mapping[int, RelationSeen]
    changed: Collection[int]

    @property
    def ordinal(self) -> int:
        return self.session.next_ordinal

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Of the log, with the catalogue's facts and the marker. Raises what reading raises, and PeriodEndsError."""
        look, reader = self.look, self.reader
        if look.fingerprints:
            yield catalogue_rows(self.ordinal, self.window.lo, look.fingerprints)
        if look.facts:
            yield changed_facts_rows(self.ordinal, self.window.hi, masked_alike(look.facts, self.tables))
        new = () if self.session.pipeline.source.has_publications else look.new_partitions
        for batch in reader.rows(batches):
            if self.periods is not None:
                self.periods.look_at(batch)
            look.note_truncates(batch)
            if new:
                look.note_reasons(partitions_of_a_name(new, batch))
            yield batch
            self.session.on_batch(reader.messages)
        if look.is_truncated_by_others:
            identity = self.session.identity
            look.note_subtransactions(
                truncating_subtransactions(self.session.control, identity.slot, self.window, identity.options)
            )
        if reader.relations:
            yield self._facts()
        yield marker_row(self.marker())

    def _facts(self) -> pa.RecordBatch:
        control, pipeline = self.session.control, self.session.pipeline
        relations = [*self.announced.values(), *self.reader.relations]
        relids = sorted({relation.relid for relation in relations})
        facts = relation_facts(control, relids=relids, keys=pipeline.declared_keys, masks=pipeline.masks)
        announced = [*filter(None, (relation_of(relation.message) for relation in relations))]
        self.look.note_reasons(identities_for_a_time(control, self.look.relids, announced, facts))
        changed = {counts.relid for counts in self.reader.relation_counts()}
        known = {*self.changed, *self.look.parts_before}
        self.look.note_reasons(partitions_for_a_time(control, announced, changed, known), shown=False)
        self.look.note_gone([relation.relid for relation in announced])
        return facts_rows(self.ordinal, self.reader.relations, masked_alike(facts, self.tables))

    def marker(self) -> WindowMarker:
        """Complete when the rows are read."""
        session, reader, periods = self.session, self.reader, self.periods
        if periods is not None and session.clock is not None:
            periods = periods.ending(session.clock, self.window.hi)
        return WindowMarker(
            ordinal=self.ordinal,
            window=self.window,
            identity=session.identity,
            relations=reader.relation_counts(),
            transactions=reader.transactions,
            messages=reader.messages,
            bytes=reader.bytes,
            logical_messages=reader.logical_messages,
            unknown=reader.unknown,
            followed=followed_lines(session.pipeline, session.checkpoint),
            catalogue=self.look.seen(self.ordinal, self.window),
            tables=session.pipeline.lake.tables,
            periods=periods.seen if periods is not None else None,
        )
