"""The marker of a landed window: its bounds, where it was read, what it holds.

It does not depend on when or by whom the window is landed: the same window landed again gives the same marker, if the
lake is laid out as before. Times are contained only in a marker that begins a chapter, and where a pipeline has time
partitions.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from spark_jobs.change_log.change_counts import NO_CHANGES, ChangeCounts
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.options.folder_template import DEFAULT_FOLDERS, FolderTemplate
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.partition_bounds import Region


@dataclass(frozen=True)
class SlotIdentity:
    """Which WAL was read, and how: windows of another identity cannot follow these.

    ``server_version`` (``server_version_num``) is the current one; it may rise with a minor update. ``chapter``: the
    ordinal of the marker that this chapter of the log began with; LSNs of different chapters cannot be compared.
    ``log``: in a later chapter, the system identifier and slot that the log began with.
    """

    system_identifier: int
    timeline: int
    database: str
    slot: str
    plugin: str
    options: tuple[tuple[str, str], ...]
    server_version: int
    chapter: int = 0
    log: tuple[int, str] | None = None

    @property
    def stream(self) -> tuple[int, str]:
        """The system identifier and slot that name the application transactions of log and tables. They stay the same
        in all chapters, so that a late writer of an earlier chapter is skipped like any other."""
        return self.log or (self.system_identifier, self.slot)

    @property
    def app_id(self) -> str:
        """The identifier of the change log's application transactions, whose version is the window's ordinal."""
        system_identifier, slot = self.stream
        return f"pgcdc:{system_identifier}:{slot}"

    def following(self, landed: SlotIdentity, chapter: int | None = None) -> SlotIdentity:
        """This identity as part of the log that ``landed`` belongs to: in the same chapter, or in ``chapter``."""
        log = None if landed.stream == (self.system_identifier, self.slot) else landed.stream
        return replace(self, chapter=landed.chapter if chapter is None else chapter, log=log)


@dataclass(frozen=True)
class ChapterBreak:
    """Why a chapter of the log begins: ``what`` broke, and when that was noticed (``at``, UTC, by the source's clock).
    Until then the log was read from ``before``, up to the LSN ``end``. Changes between the chapters were not sent; new
    snapshots show them.
    """

    what: str
    at: str
    before: SlotIdentity
    end: int


class _OfRelation:
    """What a marker says of one relation, under the names that existing logs have."""

    nspname: str
    relname: str

    @property
    def name(self) -> QualifiedName:
        return QualifiedName(self.nspname, self.relname)


@dataclass(frozen=True)
class RelationCounts(_OfRelation):
    """The number of changes of one relation in a window; ``bytes`` is the total length of their messages."""

    relid: int
    nspname: str
    relname: str
    changes: ChangeCounts = NO_CHANGES
    bytes: int = 0


@dataclass(frozen=True)
class UnknownMessage:
    """A message of a type that this version does not know, kept raw at (``commit_lsn``, ``ordinal``).

    ``kind`` is its first byte as a character. ``relids`` are the relations that it may be about; if empty, any.
    """

    kind: str
    commit_lsn: int
    ordinal: int
    relids: tuple[int, ...]


@dataclass(frozen=True)
class FollowedSince(_OfRelation):
    """A table whose test_decoding lines the log has kept without interruption since the window ``since``."""

    nspname: str
    relname: str
    since: int


@dataclass(frozen=True)
class TableChanged(_OfRelation):
    """A followed table that changed without a row event; ``word`` is its new fingerprint's.

    ``reasons``: why its rows may have changed. ``columns``: changes of its columns that left all rows as they are; the
    catalogue's facts are landed with these. ``added``: the attribute numbers of new columns. If there are neither
    reasons nor columns, this is the first look at the table: it has changed if its snapshot has another fingerprint.
    ``regions``: if all reasons are partitions that were attached or removed, the rows that may differ; if empty, any.
    """

    relid: int
    nspname: str
    relname: str
    word: str
    reasons: tuple[str, ...]
    columns: tuple[str, ...] = ()
    added: tuple[int, ...] = ()
    regions: tuple[Region, ...] = ()


@dataclass(frozen=True)
class FileMoved:
    """A followed table whose rows are in another file since transaction ``xid``. ``table`` says what that means, unless
    a TRUNCATE by that transaction explains it. Such a TRUNCATE is in a window that begins before the LSN ``until``.
    """

    table: TableChanged
    xid: int
    until: int


@dataclass(frozen=True)
class CatalogueSeen:
    """The look at the catalogue when a window was landed. ``word`` is a hash of all fingerprints of followed tables;
    they are in the log with window ``window``. ``horizon``: see ``transaction_horizon``. ``changed``: tables that
    changed since the previous window. ``moved``: moved files that no window landed so far explains. ``annotated``: the
    relids of tables about which the source says something else now: a comment, a type; no row has changed by that.
    """

    word: str
    window: int
    horizon: int
    changed: tuple[TableChanged, ...] = ()
    moved: tuple[FileMoved, ...] = ()
    annotated: tuple[int, ...] = ()


@dataclass(frozen=True)
class PeriodsSeen:
    """Of a pipeline with time partitions: the days and hours whose ``ends`` are this window's end. The next window
    begins with the first transaction that committed after them. The ends up to ``settled`` are these and those of
    earlier windows, and there will be no others. All are in ISO 8601, UTC.
    """

    settled: str
    ends: tuple[str, ...] = ()


@dataclass(frozen=True)
class WindowMarker:
    """Window number ``ordinal``. Window 0 begins the log: it is empty, at the slot's first position. Each later chapter
    also begins with an empty window, whose ``broke`` says why.

    ``messages`` counts the plugin's messages in the form of protocol 1, including Begin and Commit; ``bytes`` is their
    total length. ``logical_messages`` are those of ``pg_logical_emit_message``. ``followed`` is used with test_decoding
    only, where no publication names the tables. ``catalogue`` is None in logs of an older version. ``tables``: where
    the lake's tables were then. ``periods`` is None where no time partitions were configured. ``begun_at``: when window
    0 was landed, in ISO 8601, UTC; None in other windows, and in logs of an older version.
    """

    ordinal: int
    window: Window
    identity: SlotIdentity
    relations: tuple[RelationCounts, ...] = ()
    transactions: int = 0
    messages: int = 0
    bytes: int = 0
    logical_messages: int = 0
    unknown: tuple[UnknownMessage, ...] = ()
    followed: tuple[FollowedSince, ...] = ()
    catalogue: CatalogueSeen | None = None
    broke: ChapterBreak | None = None
    tables: FolderTemplate = DEFAULT_FOLDERS
    periods: PeriodsSeen | None = None
    begun_at: str | None = None

    @property
    def began(self) -> datetime | None:
        """When the chapter began that this is the first marker of, if it is known."""
        at = self.begun_at if self.broke is None else self.broke.at
        return None if at is None else datetime.fromisoformat(at)

    @property
    def has_same_catalogue(self) -> bool:
        """For the first marker of a chapter, whether all DDL that was landed before has also happened where this
        chapter is read. Then OIDs and attribute numbers mean what they did."""
        broke, now = self.broke, self.identity
        if broke is None:
            return True
        there = (broke.before.system_identifier, broke.before.database, broke.before.timeline)
        return there == (now.system_identifier, now.database, now.timeline) and broke.end <= self.window.lo

    @property
    def ends(self) -> tuple[str, ...]:
        """The ends of days and hours that are this window's end."""
        return self.periods.ends if self.periods is not None else ()

    @property
    def changes(self) -> int:
        return sum(relation.changes.total for relation in self.relations)

    def counts_of(self, relid: int | None, name: QualifiedName | None = None) -> tuple[RelationCounts, ...]:
        """Those of the relations that have this OID or this name, in their order. Each table of a lake asks for its
        own, so the cost does not depend on how many relations the window changed."""
        places = {*self._places.get(relid, ()), *self._places.get(name, ())}
        return tuple(self.relations[place] for place in sorted(places))

    @cached_property
    def _places(self) -> Mapping[int | QualifiedName | None, list[int]]:
        """Where in ``relations`` an OID or a name is."""
        places: dict[int | QualifiedName | None, list[int]] = {}
        for place, counts in enumerate(self.relations):
            for key in (counts.relid, counts.name):
                places.setdefault(key, []).append(place)
        return places

    def to_json(self) -> str:
        fields = asdict(self)
        fields["window"] = [str(self.window.lo), str(self.window.hi)]
        for relation in fields["relations"]:  # existing logs have the counts flat
            relation |= relation.pop("changes")
        if self.tables == DEFAULT_FOLDERS:  # as existing logs have it, and earlier versions can read it
            del fields["tables"]
        for name in ("periods", "begun_at"):
            if fields[name] is None:
                del fields[name]
        if self.catalogue is not None and not self.catalogue.annotated:
            del fields["catalogue"]["annotated"]
        return json.dumps(fields, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | builtins.bytes) -> WindowMarker:
        """Raises KeyError, TypeError or ValueError if ``to_json`` did not write ``text``."""
        fields: dict[str, Any] = json.loads(text)
        lo, hi = fields.pop("window")
        relations = tuple(_relation_counts(relation) for relation in fields.pop("relations"))
        # markers written by an older version lack it
        unknown = tuple(
            UnknownMessage(**{**message, "relids": tuple(message["relids"])}) for message in fields.pop("unknown", ())
        )
        return cls(
            window=Window(Lsn.parse(lo), Lsn.parse(hi)),
            identity=_identity(fields.pop("identity")),
            relations=relations,
            unknown=unknown,
            followed=tuple(FollowedSince(**table) for table in fields.pop("followed", ())),
            catalogue=_catalogue_seen(fields.pop("catalogue", None)),
            broke=_broke(fields.pop("broke", None)),
            tables=FolderTemplate(**fields.pop("tables", {})),
            periods=_periods_seen(fields.pop("periods", None)),
            **fields,
        )


def first_missing(after: int, markers: Iterable[WindowMarker]) -> int | None:
    """The first window that the log should hold after window ``after``, and that is not among ``markers``, which are
    all that it holds after it, in order. None if none is missing, as far as they reach."""
    return next((due for due, marker in enumerate(markers, after + 1) if marker.ordinal != due), None)


def _identity(fields: dict[str, Any]) -> SlotIdentity:
    options = tuple((name, value) for name, value in fields.pop("options"))
    log = fields.pop("log", None)
    return SlotIdentity(options=options, log=None if log is None else (log[0], log[1]), **fields)


def _broke(fields: dict[str, Any] | None) -> ChapterBreak | None:
    if fields is None:
        return None
    return ChapterBreak(before=_identity(fields.pop("before")), **fields)


def _catalogue_seen(fields: dict[str, Any] | None) -> CatalogueSeen | None:
    if fields is None:
        return None
    changed = tuple(_table_changed(table) for table in fields.pop("changed"))
    moved = tuple(FileMoved(**{**file, "table": _table_changed(file["table"])}) for file in fields.pop("moved", ()))
    annotated = tuple(fields.pop("annotated", ()))
    return CatalogueSeen(changed=changed, moved=moved, annotated=annotated, **fields)


def _periods_seen(fields: dict[str, Any] | None) -> PeriodsSeen | None:
    return None if fields is None else PeriodsSeen(fields["settled"], tuple(fields["ends"]))


def _table_changed(fields: dict[str, Any]) -> TableChanged:
    listed = {name: tuple(fields.get(name, ())) for name in ("reasons", "columns", "added")}
    regions = tuple(Region.of_json(region) for region in fields.get("regions", ()))
    return TableChanged(**{**fields, **listed, "regions": regions})


def _relation_counts(fields: dict[str, Any]) -> RelationCounts:
    changes = ChangeCounts(*(fields.pop(kind) for kind in ("inserts", "updates", "deletes", "truncates")))
    return RelationCounts(changes=changes, **fields)
