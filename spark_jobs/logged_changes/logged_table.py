"""A table as the change log knows it: which relation it is, and which columns it had at the end of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.errors import ConfigurationError
from spark_jobs.lake.table_state import TableState, table_state
from spark_jobs.logged_changes.descriptions import (
    Described,
    KnownColumns,
    counted,
    described,
    known_columns,
    looks_of,
    seen_columns,
)
from spark_jobs.options.column_options import NO_OPTIONS, ColumnOptions
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.fingerprint import Fingerprint
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.schema.relation_version import sent_columns
from spark_jobs.schema.table_shape import TableShape

_TEXT_OID = 25


@dataclass(frozen=True)
class LoggedTable:
    """``options``: of its columns. If the lake has the table, the types of that one are taken: the configuration may
    have others by now."""

    lake: Lake
    name: QualifiedName
    options: ColumnOptions = NO_OPTIONS

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(self.lake.change_log)


@dataclass(frozen=True)
class TableUntil:
    """The table at the end of the last of ``markers``, which are windows of one chapter, at least one. ``relation``:
    its relid, if it is known already."""

    table: LoggedTable
    markers: Sequence[WindowMarker] = field(repr=False)
    relation: int | None = None

    @cached_property
    def state(self) -> TableState | None:
        """That of the table in the lake; None if it has none."""
        last = self.markers[-1]
        lake = replace(self.table.lake, tables=last.tables)
        state = table_state(lake, self.table.name, last.identity)
        return None if state is None or state.is_lost else state

    @cached_property
    def relid(self) -> int:
        """That of the last window in which a table of this name has changed; else of the last look at the catalogue.

        Raises ConfigurationError for a table that the log does not know.
        """
        if self.relation is not None:
            return self.relation
        name = self.table.name
        for marker in reversed(self.markers):
            if counts := marker.counts_of(None, name):
                return counts[0].relid
        if self._seen is not None:
            return self._seen.relid
        changed = {each.name for marker in self.markers for each in marker.relations}
        known = ", ".join(map(str, sorted(changed)))
        raise ConfigurationError(
            f"the change log {self.table.log.path} knows no table {name}",
            hint=f"it has changes of {known}" if known else "`postgres-cdc status` lists the tables",
        )

    @cached_property
    def shape(self) -> TableShape:
        """Its columns. It is without a key: to read a change, none is needed."""
        looks = [look for marker in self.markers for look in looks_of(marker, self.relid)]
        facts, sent = self._described
        sent = sent | {number for look in looks for number in look.added}
        types = self.table.options.types
        if self.state is not None:
            sent, types = sent - self.state.differing.ignored_numbers, self.state.generation.types
        keyless = replace(facts, primary_key=(), replica_identity=(), declared_key=(), leaf_identities=())
        options = replace(self.table.options, types=types)
        shape = TableShape.of(with_options(keyless, options), sent=sent)
        # a change that is older than a column has no value for it, whatever existing rows were given
        columns = tuple(replace(column, missing=None) for column in shape.columns)
        return replace(shape, columns=columns, leaf_identities=facts.leaf_identities)

    @property
    def facts(self) -> RelationFacts:
        """The newest that the windows have."""
        return self._described[0]

    @property
    def mask(self) -> str:
        """The word of its masks, empty if no column is masked."""
        return self.facts.mask if self.state is None else self.state.generation.mask

    @cached_property
    def _described(self) -> tuple[RelationFacts, frozenset[int]]:
        """The newest facts, and the numbers of the columns that were sent last."""
        relid, last = self.relid, self.markers[-1].ordinal
        changed = (marker.ordinal for marker in reversed(self.markers) if counted(marker, relid))
        looked_at = (marker.ordinal for marker in self.markers if looks_of(marker, relid))
        newest = next(changed, next(looked_at, None))
        (description,) = described(self.table.log, relid, [(newest, last)]) if newest is not None else (Described(),)
        if not description.facts:
            return self._by_look()
        facts = description.facts[-1]
        known: list[KnownColumns] = [*map(known_columns, description.facts)]
        if (look := self.markers[-1].catalogue) is not None:
            known += seen_columns(self.table.log, relid, look.window)
        sent = frozenset(column.attnum for column in facts.columns if not column.attgenerated)
        for message in description.messages.values():
            sent = frozenset(sent_columns(message.data, known) or sent)
        return facts, sent

    def _by_look(self) -> tuple[RelationFacts, frozenset[int]]:
        """By the last look at the catalogue, for a table that has not changed yet: it does not resolve types of the
        source's own, and does not know which generated columns are sent."""
        fingerprint = self._seen
        assert fingerprint is not None, "else there is no relid"
        masked = fingerprint.mask.columns if fingerprint.mask is not None else ()
        columns = tuple(
            ColumnFacts(c.attnum, c.attname, typid, typmod, "", typid, typmod, "", attnotnull=False)
            for c in fingerprint.columns
            for typid, typmod in [(_TEXT_OID, -1) if c.attname in masked else (c.atttypid, c.atttypmod)]
        )
        name = fingerprint.name
        facts = RelationFacts(
            fingerprint.relid, name.nspname, name.relname, "d", (), (), columns, mask=fingerprint.mask_word
        )
        return facts, frozenset(column.attnum for column in columns)

    @cached_property
    def _seen(self) -> Fingerprint | None:
        looks = self.table.log.last_look(self.markers[-1])
        return next((each for each in looks if each.name == self.table.name), None)
