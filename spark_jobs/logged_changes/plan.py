"""How the changes of some windows are read: in pieces of bounded size, each of which a task can decode by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain

import pyarrow as pa

from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.delta.counted_files import DataFile
from spark_jobs.errors import DecodeError, SchemaChangeError
from spark_jobs.logged_changes.descriptions import (
    Described,
    KnownColumns,
    between,
    described,
    known_columns,
    looks_of,
    seen_columns,
)
from spark_jobs.logged_changes.logged_table import LoggedTable
from spark_jobs.logged_changes.piece import Piece
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.options.table_mask import why_masked_otherwise
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.tables.catalogue_changes import another_table, is_of_another
from spark_jobs.tables.understood_windows import unknown_messages, what_is_unknown

# of messages that one piece holds. Decoded, they are about three times as large
_PIECE_BYTES = 32 << 20
_APART = "read the changes before it and those after it apart"


@dataclass(frozen=True)
class _Group:
    """Windows with changes of the table that are decoded alike. ``before``: the window before the first, if it is
    known; ``bytes``: of the table's messages in them."""

    markers: tuple[WindowMarker, ...]
    before: WindowMarker | None
    bytes: int = 0

    @property
    def span(self) -> tuple[int, int]:
        return self.markers[0].ordinal, self.markers[-1].ordinal


@dataclass(frozen=True)
class Plan:
    """The changes of ``table`` in the windows ``markers``, in order, of transactions that committed in [``since``,
    ``until``); None: without a bound. ``before``: the window before these, if the log has it. ``shape``: the columns to
    show. ``mask``: the word of the masks that the table has."""

    table: LoggedTable
    shape: TableShape
    mask: str
    markers: Sequence[WindowMarker]
    before: WindowMarker | None = None
    since: Lsn | None = None
    until: Lsn | None = None

    def pieces(self) -> Iterator[Piece]:
        """In the order of the log. Raises LakeError; before the first piece, DecodeError for windows that are not
        understood, and SchemaChangeError where columns or masks changed so that one shape cannot show it."""
        groups = list(self._groups())
        if not groups:
            return iter(())
        descriptions = described(self.table.log, self.shape.relid, [group.span for group in groups])
        files = self.table.log.files_after(self.markers[0].ordinal - 1)
        columns_of = cache(partial(seen_columns, self.table.log, self.shape.relid))
        relations = [
            self._relations(group, description, columns_of)
            for group, description in zip(groups, descriptions, strict=True)
        ]
        return chain.from_iterable(map(partial(self._pieces_of, files), groups, relations))

    def _groups(self) -> Iterator[_Group]:
        """A window in which columns changed is a group of its own: a message is understood by the columns before and
        after it."""
        group: _Group | None = None
        before = self.before
        for marker in self.markers:
            self._require_understood(marker)
            counts = marker.counts_of(self.shape.relid)
            alone, size = bool(looks_of(marker, self.shape.relid)), sum(each.bytes for each in counts)
            if group is not None and (alone or group.bytes + size > _PIECE_BYTES):
                yield group
                group = None
            if counts:
                group = group or _Group((), before)
                group = _Group((*group.markers, marker), group.before, group.bytes + size)
            if group is not None and alone:
                yield group
                group = None
            before = marker
        if group is not None:
            yield group

    def _pieces_of(
        self, files: Sequence[DataFile], group: _Group, relations: Mapping[int, RelationVersion]
    ) -> Iterator[Piece]:
        first, last = group.span
        relid = self.shape.relid
        holding = [
            file.path for file in files if file.may_hold("relid", relid) and file.may_hold_any("window", first, last)
        ]
        rules = NetRules(self.shape, relations, "append")
        since, until = (None if lsn is None else Position(lsn, 0) for lsn in (self.since, self.until))
        whole = Piece(self.table.log.path, tuple(holding), relid, first, last, rules, since, until)
        return _split(whole, 1 + group.bytes // _PIECE_BYTES)

    def _relations(
        self, group: _Group, description: Described, columns_of: Callable[[int], Sequence[KnownColumns]]
    ) -> dict[int, RelationVersion]:
        """``columns_of``: the table's columns by the look at the catalogue that was landed with a window."""
        name = self.shape.name
        for facts in description.facts:
            if why := why_masked_otherwise(self.mask, facts.mask):
                raise SchemaChangeError(
                    f"changes of {name} in windows {group.span[0]} to {group.span[1]} cannot be shown: since then"
                    f" {why}",
                    hint=f"begin after window {group.span[1]}, at LSN {group.markers[-1].window.hi}",
                )
        around = (group.before, *group.markers) if group.before is not None else group.markers
        looks = sorted({marker.catalogue.window for marker in around if marker.catalogue is not None})
        known = [*map(known_columns, description.facts), *chain.from_iterable(map(columns_of, looks))]
        numbers = {column.attnum for columns in known for column in columns}
        of_shape = {column.attnum for column in self.shape.columns}
        known.append(between(known))
        relations = {
            version: RelationVersion.of(message.data, self.shape, known, of_shape, of_shape - numbers)
            for version, message in description.messages.items()
        }
        for version, relation in relations.items():
            if relation.places is None:
                at = description.messages[version].lsn
                raise SchemaChangeError(
                    f"the changes of {name} at {at} cannot be shown in the columns that it has later: a type was"
                    " changed, or a column replaced by another one of its name",
                    hint=_APART,
                )
        return relations

    def _require_understood(self, marker: WindowMarker) -> None:
        name, relid = self.shape.name, self.shape.relid
        for counts in marker.counts_of(None, name):
            if is_of_another(counts, name, relid):
                raise another_table(marker, name, hint=_APART)
        for message in unknown_messages(marker, name, relid):
            raise DecodeError(
                f"changes of {name} cannot be shown from window {marker.ordinal} {marker.window} on:"
                f" {what_is_unknown(message)}",
                hint="use a newer version of postgres-cdc",
            )


def _split(whole: Piece, parts: int) -> Iterator[Piece]:
    """``whole`` in pieces of about as many changes, one after the other."""
    if parts == 1:
        yield whole
        return
    positions = whole.positions()
    step = max(1, -(-len(positions) // parts))
    at = positions.take(pa.array(range(step, len(positions), step), pa.int64()))
    cuts = [Position(Lsn(row["commit_lsn"]), row["ordinal"]) for row in at.to_pylist()]
    for since, until in zip([whole.since, *cuts], [*cuts, whole.until], strict=True):
        yield replace(whole, since=since, until=until)
