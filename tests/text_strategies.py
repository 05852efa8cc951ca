"""Hypothesis strategies for lines of ``test_decoding``: hostile names, hostile values."""

from __future__ import annotations

from hypothesis import strategies as st

from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Change, ColumnValue, Delete, Insert, TupleData, Update
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.logicalrep.test_decoding.changes import BIT_TYPES, BOOLEAN_TYPES, NUMBER_TYPES
from spark_jobs.logicalrep.test_decoding.lines import (
    BeginLine,
    CommitLine,
    Form,
    Line,
    MessageLine,
    NamedValue,
    Phase,
    Row,
    RowLine,
    StreamEvent,
    StreamLine,
    StreamMessageLine,
    TruncateLine,
    TwoPhaseLine,
)

_HOSTILE = "a1_ .:[]\",'\\\n=(é"
NAMES = st.one_of(
    st.sampled_from(["id", "user", "old-key", "new-tuple", "a[integer]:1", "order", "x: INSERT", "null", "Ä"]),
    st.text(_HOSTILE, min_size=1, max_size=8),
)
TYPE_NAMES = st.sampled_from(
    [
        "text",
        "integer[]",
        "timestamp without time zone",
        "public.mood",
        'public."we ]ird"',
        's."x"":y"[]',
        '"char"',
        "date",
    ]
)
TEXTS = st.one_of(
    st.sampled_from(
        [b"", b"null", b"'", b"''", b"a'b", b"x\n' y[text]:'z", b"unchanged-toast-datum", b"\\", b" ", b"'x'"]
    ),
    st.binary(max_size=12),
    st.lists(st.sampled_from([b"'", b" ", b"a", b"'' ", b" b[text]:'"]), max_size=6).map(b"".join),
)
NUMBERS = st.sampled_from([b"0", b"-7", b"12.50", b"NaN", b"Infinity", b"-Infinity", b"1e-05", b"5", b"-0"])
BITS = st.sampled_from([b"", b"0", b"101"])
BOOLEANS = st.sampled_from([b"t", b"f"])
_BY_FORM = {Form.NUMBER: NUMBERS, Form.BITS: BITS, Form.BOOLEAN: BOOLEANS, Form.QUOTED: TEXTS}

XIDS = st.none() | st.integers(0, 2**32 - 1)
TIMES = st.none() | st.integers(-(60_000_000_000_000_000), 252_455_615_999_999_999)
TABLES = st.tuples(NAMES, NAMES)
_NAMED = st.sampled_from(list(Form)).flatmap(
    lambda form: st.builds(NamedValue, NAMES, TYPE_NAMES, st.just(form), _BY_FORM.get(form, st.just(b"")))
)
ROWS = st.lists(_NAMED, max_size=5).map(tuple)
# a prefix that holds the words which end it cannot be told from a shorter one
PREFIXES = st.text(_HOSTILE, max_size=8).filter(lambda text: ", sz" not in text)

LINES: st.SearchStrategy[Line] = st.one_of(
    st.builds(BeginLine, XIDS),
    st.builds(CommitLine, XIDS, TIMES),
    st.builds(TwoPhaseLine, st.sampled_from(Phase), st.text(_HOSTILE, max_size=8), XIDS, TIMES),
    st.builds(RowLine, st.just("I"), TABLES, st.none(), st.none() | ROWS),
    st.builds(RowLine, st.just("U"), TABLES, st.none() | ROWS, st.none() | ROWS),
    st.builds(RowLine, st.just("D"), TABLES, st.none() | ROWS, st.none()),
    st.lists(TABLES, min_size=1, max_size=3).flatmap(
        lambda tables: st.builds(TruncateLine, st.just(tuple(tables)), st.booleans(), st.booleans())
    ),
    st.builds(MessageLine, st.booleans(), PREFIXES, st.binary(max_size=20)),
    st.builds(StreamMessageLine, st.just(True), PREFIXES, st.integers(0, 99), st.none()),
    st.tuples(PREFIXES, st.binary(max_size=20)).map(lambda two: StreamMessageLine(False, two[0], len(two[1]), two[1])),
    st.sampled_from([StreamEvent.OPEN, StreamEvent.CLOSE, StreamEvent.ABORT, StreamEvent.CHANGE]).flatmap(
        lambda event: st.builds(StreamLine, st.just(event), XIDS)
    ),
    st.builds(StreamLine, st.just(StreamEvent.TRUNCATE), XIDS),
    st.builds(StreamLine, st.just(StreamEvent.COMMIT), XIDS, st.none(), TIMES),
    st.builds(StreamLine, st.just(StreamEvent.PREPARE), XIDS, st.text(_HOSTILE, max_size=8), TIMES),
)

_UNQUOTED = {**NUMBER_TYPES, **BIT_TYPES, **BOOLEAN_TYPES}
_QUOTED_OIDS = {25: "text", 1043: "character varying", 1082: "date", 1007: "integer[]", 99999: 'public."we ]ird"'}
OIDS = {**_UNQUOTED, **_QUOTED_OIDS}


def form_of(atttypid: int) -> Form:
    if atttypid in NUMBER_TYPES:
        return Form.NUMBER
    return Form.BITS if atttypid in BIT_TYPES else Form.BOOLEAN if atttypid in BOOLEAN_TYPES else Form.QUOTED


@st.composite
def relations(draw: st.DrawFn) -> Relation:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    keys = draw(st.sets(st.sampled_from(range(len(names))), min_size=1))
    identity = draw(st.sampled_from("dif"))
    columns = tuple(
        RelationColumn(name, draw(st.sampled_from(sorted(OIDS))), -1, identity == "f" or index in keys)
        for index, name in enumerate(names)
    )
    return Relation(16384, "public", "t", identity, columns)


@st.composite
def row_changes(draw: st.DrawFn, relation: Relation) -> Change:
    """What pgoutput would send for this relation: keys are never null, kept values were not null before."""
    full = relation.relreplident == "f"
    new = tuple(draw(_value(column, key=column.key and not full, kept=True)) for column in relation.columns)
    old = tuple(
        draw(_value(column, key=(not full or new[index] is UNCHANGED_TOAST), kept=False))
        if full or column.key
        else None
        for index, column in enumerate(relation.columns)
    )
    kind = draw(st.sampled_from("IUUD"))
    if kind == "I":
        return Insert(relation.relid, new)
    pair: tuple[TupleData | None, TupleData | None] = (None, old) if full else (old, None)
    if kind == "D":
        return Delete(relation.relid, *pair)
    return Update(relation.relid, *((None, None) if draw(st.booleans()) else pair), new)


def _value(column: RelationColumn, *, key: bool, kept: bool) -> st.SearchStrategy[ColumnValue]:
    values: st.SearchStrategy[ColumnValue] = _BY_FORM[form_of(column.atttypid)]
    if not key:
        values = st.none() | values
    return values | st.just(UNCHANGED_TOAST) if kept else values


def line_of(change: Change, relation: Relation, extra: NamedValue | None = None) -> RowLine:
    """The line for a change: old rows without nulls; ``extra`` stands for a generated column, behind the first."""
    kind = type(change).__name__[0]
    old = None if isinstance(change, Insert) else change.old_key or change.old_tuple
    new = None if isinstance(change, Delete) else change.new
    return RowLine(
        kind,
        ("public", "t"),
        None if old is None else _named(old, relation, extra, skip_nulls=True),
        None if new is None else _named(new, relation, extra, skip_nulls=False),
    )


def _named(row: TupleData, relation: Relation, extra: NamedValue | None, *, skip_nulls: bool) -> Row:
    values = [
        _printed(value, column)
        for value, column in zip(row, relation.columns, strict=True)
        if not (value is None and skip_nulls)
    ]
    return tuple([*values[:1], extra, *values[1:]] if extra is not None else values)


def _printed(value: ColumnValue, column: RelationColumn) -> NamedValue:
    name, type_name = column.name, OIDS[column.atttypid]
    if value is None:
        return NamedValue(name, type_name, Form.NULL)
    if isinstance(value, bytes):
        return NamedValue(name, type_name, form_of(column.atttypid), value)
    return NamedValue(name, type_name, Form.UNCHANGED_TOAST)
