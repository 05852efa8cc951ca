"""What a decoder made of a recording, in the words of ``ExpectedChange``, and the comparison of the two."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeVar

from spark_jobs.decode.binary.value_text import value_text
from spark_jobs.logicalrep.messages import BinaryValue, Change, ColumnValue, Delete, Insert, TupleData, Unchanged
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import TypeFacts
from spark_jobs.schema.wire_type import Family, WireType, printed_otherwise, wire_type
from tests.golden.golden_file import ExpectedChange, Recording
from tests.golden.scenario import Scenario

_Change = TypeVar("_Change", "Observed", ExpectedChange)
# published as their root; test_decoding knows leaves only
_LEAVES = ("root_a", "root_b", "root_c", "root_c1")


@dataclass(frozen=True)
class Observed:
    """One change, with the number of its transaction among those that have changes, in the order they came."""

    transaction: int | None
    kind: str
    origin: str | None = None
    table: QualifiedName | None = None
    relation: Relation | None = None
    change: Change | None = None
    prefix: str | None = None
    content: str | None = None


def expected_of(recording: Recording, changes: Sequence[ExpectedChange]) -> list[ExpectedChange]:
    """Those that this recording's options let through."""
    pgoutput = recording.plugin == "pgoutput"
    kinds = Scenario.of(recording.theme).publishes if pgoutput else frozenset("IUDT")
    if not pgoutput or recording.option("messages") == "true":
        kinds |= {"M"}
    local = recording.option("origin") == "none" or recording.option("only-local") == "1"
    return [each for each in changes if each.kind in kinds and not (local and each.origin)]


def assert_agrees(recording: Recording, observed: Sequence[Observed], changes: Sequence[ExpectedChange]) -> None:
    """Same changes, same order, same transactions; raises AssertionError with the first that differ."""
    expected = list(_in_table_order(expected_of(recording, changes)))
    actual = list(_in_table_order(observed))
    assert [_head(each, recording) for each in actual] == [_head(each, recording) for each in expected]
    assert _grouping(actual) == _grouping(expected)
    for saw, change in zip(actual, expected, strict=True):
        if saw.change is not None:
            assert saw.relation is not None
            assert _agrees(saw.change, saw.relation, change), (saw, change)


def _head(each: Observed | ExpectedChange, recording: Recording) -> tuple[object, ...]:
    pgoutput = recording.plugin == "pgoutput"
    table = QualifiedName.parse(each.table) if isinstance(each.table, str) else each.table
    if pgoutput and table is not None and table.relname in _LEAVES:
        table = QualifiedName("public", "root")
    # test_decoding tells no origin
    return each.kind, each.origin if pgoutput else None, table, each.prefix, each.content


def _grouping(changes: Iterable[Observed | ExpectedChange]) -> list[int]:
    """How many changes stand together in one transaction; a message outside any stands alone."""
    return [len(list(group)) for _, group in groupby(changes, key=lambda each: each.transaction)]


def _in_table_order(changes: Sequence[_Change]) -> Iterable[_Change]:
    """The tables of one TRUNCATE have no order."""
    for (_, kind), group in groupby(changes, key=lambda each: (each.transaction, each.kind)):
        together = list(group)
        yield from sorted(together, key=lambda each: str(each.table)) if kind == "T" else together


def _agrees(change: Change, relation: Relation, expected: ExpectedChange) -> bool:
    """New values, or the mark of an unchanged value where it is one; old values of the identity where they are due."""
    names = [column.name for column in relation.columns]
    old, new = expected.old or {}, expected.new or {}
    if not isinstance(change, Delete) and not all(
        old.get(name) == new[name] if isinstance(value, Unchanged) else _text(value) == new[name]
        for name, value in zip(names, change.new, strict=True)
    ):
        return False
    if isinstance(change, Insert):
        return expected.old is None
    return _old_agrees(change.old_key, change.old_tuple, names, expected)


def _old_agrees(
    old_key: TupleData | None, old_tuple: TupleData | None, names: list[str], expected: ExpectedChange
) -> bool:
    identity, old = expected.identity or (), expected.old or {}
    full = expected.relation is not None and expected.relation.relreplident == "f"
    sent = old_tuple if full else old_key
    if (old_key if full else old_tuple) is not None:
        return False
    if sent is None:  # the key is as it was
        return expected.new is not None and all(old[name] == expected.new[name] for name in identity)
    values = [old[name] if name in identity else None for name in names]
    return [_text(value) for value in sent] == values


def _text(value: ColumnValue) -> str | None:
    if value is None:
        return None
    assert isinstance(value, bytes), f"{type(value).__name__} where text is due"
    return value.decode()


def as_text(observed: Observed, version: int) -> Observed:
    """The same change with the text of its binary values, as a server of this version prints it."""
    of_server = partial(_in_text, otherwise=printed_otherwise(version * 10_000))
    relation, change = observed.relation, observed.change
    if relation is None or change is None:
        return observed
    if isinstance(change, Insert):
        return replace(observed, change=replace(change, new=of_server(change.new, relation)))
    if isinstance(change, Delete):
        return replace(observed, change=replace(change, old_key=of_server(change.old_key or (), relation)))
    assert change.old_key is change.old_tuple is None, "the theme has no such change"
    return replace(observed, change=replace(change, new=of_server(change.new, relation)))


def _in_text(row: TupleData, relation: Relation, *, otherwise: Collection[int]) -> TupleData:
    return tuple(
        _text_of(value.data, column.atttypid, column.name, otherwise) if isinstance(value, BinaryValue) else value
        for value, column in zip(row, relation.columns, strict=True)
    )


def _text_of(data: bytes, typid: int, column: str, otherwise: Collection[int]) -> bytes:
    facts = [_LSN_OF_19] if typid in otherwise else []
    known = wire_type(typid, facts) if typid < _FIRST_USER_OID else _OWN_TYPES[column]
    return value_text(data, known).encode()


_FIRST_USER_OID = 16384
_LSN_OF_19 = TypeFacts(3220, "pg_lsn", "b", ",", "pg_lsn_out", "pg_lsn_send")
_INT, _TEXT = wire_type(23), wire_type(25)
# of theme types_binary: the catalogue's facts of its own types, by column
_OWN_TYPES = {
    "e": WireType(_FIRST_USER_OID, "mood", Family.TEXT),
    "d": _INT,
    "co": WireType(_FIRST_USER_OID, "pair", Family.RECORD, parts=(_INT, _TEXT)),
    "h": WireType(_FIRST_USER_OID, "hstore", Family.HSTORE),
}
