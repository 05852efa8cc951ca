"""What the change log says of a table's columns, window by window: Relation messages, the catalogue's facts, and looks
at the catalogue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import TableChanged, WindowMarker
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.schema.lake_types import lake_type
from spark_jobs.schema.relation_facts import RelationFacts, landed_facts
from spark_jobs.schema.relation_version import KnownColumn, KnownType

KnownColumns: TypeAlias = tuple[KnownColumn, ...]
# window, commit LSN, ordinal
_Place: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class RelationMessage:
    """``lsn``: that of the first transaction in which it was sent."""

    lsn: Lsn
    data: bytes


@dataclass(frozen=True)
class Described:
    """What some windows say: ``facts``, and the Relation ``messages`` by relation version; the latest come last."""

    facts: tuple[RelationFacts, ...] = ()
    messages: dict[int, RelationMessage] = field(default_factory=dict)


def described(log: ChangeLog, relid: int, spans: Sequence[tuple[int, int]]) -> tuple[Described, ...]:
    """What each of the spans says, which are pairs of a first and a last window, in order. Memory does not grow with
    the windows. Raises LakeError, DecodeError."""
    if not spans:
        return ()
    firsts, lasts = zip(*spans, strict=True)
    window = pc.field("window")
    condition = (window >= firsts[0]) & (window <= lasts[-1]) & (pc.field("relid") == relid)
    condition &= pc.field("kind").isin([RowKind.RELATION.value, RowKind.FACTS.value])
    facts: list[dict[bytes, _Place]] = [{} for _ in spans]
    messages: list[dict[int, list[tuple[_Place, bytes]]]] = [{} for _ in spans]
    columns = ["window", "commit_lsn", "ordinal", "kind", "version", "data"]
    for batch in log.scan(condition, columns, after_ordinal=firsts[0] - 1):
        for window_, lsn, ordinal, kind, version, data in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
            span, place = bisect_left(lasts, window_), (window_, lsn, ordinal)
            if window_ < firsts[span]:
                continue
            if kind == RowKind.FACTS:
                facts[span][data] = max(place, facts[span].get(data, place))
            else:
                known = messages[span].setdefault(version, [(place, data), (place, data)])
                known[:] = [min(known[0], (place, data)), max(known[1], (place, data))]
    return tuple(_described(relid, *pair) for pair in zip(facts, messages, strict=True))


def _described(relid: int, facts: dict[bytes, _Place], messages: dict[int, list[tuple[_Place, bytes]]]) -> Described:
    latest_last = landed_facts(sorted(facts, key=facts.__getitem__), f"relation {relid}")
    in_order = sorted(messages.items(), key=lambda item: item[1][1][0])
    return Described(
        latest_last, {version: RelationMessage(Lsn(first[1]), data) for version, ((first, data), _) in in_order}
    )


def known_columns(facts: RelationFacts) -> KnownColumns:
    return tuple(map(KnownColumn.of, facts.columns))


def seen_columns(log: ChangeLog, relid: int, ordinal: int) -> tuple[KnownColumns, ...]:
    """The table's columns by the look at the catalogue that was landed with window ``ordinal``; empty if that did not
    see the table."""
    return tuple(
        tuple(
            KnownColumn(
                column.attnum, column.attname, KnownType(lake_type(column.atttypid, column.atttypmod), column.atttypid)
            )
            for column in fingerprint.columns
        )
        for fingerprint in log.fingerprints(ordinal)
        if fingerprint.relid == relid
    )


def between(known: Sequence[KnownColumns]) -> KnownColumns:
    """The columns that the table may have had between two of these descriptions, where several statements changed it:
    those whose name is that of one column only."""
    numbers: dict[str, set[int]] = {}
    for column in chain.from_iterable(known):
        numbers.setdefault(column.name, set()).add(column.attnum)
    return tuple(KnownColumn(attnums.pop(), name) for name, attnums in numbers.items() if len(attnums) == 1)


def looks_of(marker: WindowMarker, relid: int) -> tuple[TableChanged, ...]:
    """The looks that found changed columns of the table."""
    changed = marker.catalogue.changed if marker.catalogue is not None else ()
    return tuple(each for each in changed if each.relid == relid and each.columns)


def counted(marker: WindowMarker, relid: int) -> bool:
    """Whether the window has changes of the table."""
    return bool(marker.counts_of(relid))
