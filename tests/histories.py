"""Random histories of one table, with the dictionary they end in: the oracle of the net change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import strategies as st

from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.logicalrep.messages import (
    UNCHANGED_TOAST,
    ColumnValue,
    Delete,
    Insert,
    Message,
    Truncate,
    TupleData,
    Update,
)
from spark_jobs.logicalrep.relation import Relation, RelationColumn, fingerprint
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from tests.wire import write_message

RELID = 16384
Row = tuple[bytes | None, ...]

# columns: (id bigint, part text) are the key, then number int, doc text, note text; doc and note may be TOASTed
WIDTH, KEY, TOASTED = 5, (0, 1), (3, 4)
_TYPES = (20, 25, 23, 25, 25)
_KINDS = (LakeKind.BIGINT, LakeKind.STRING, LakeKind.INT, LakeKind.STRING, LakeKind.STRING)
_NAMES = ("id", "part", "number", "doc", "note")

SHAPE = TableShape(
    RELID,
    QualifiedName("public", "t"),
    tuple(
        LakeColumn(name, index + 1, LakeType(kind), index in KEY, oid)
        for index, (name, kind, oid) in enumerate(zip(_NAMES, _KINDS, _TYPES, strict=True))
    ),
)


def mapped(messages: Mapping[int, bytes], shape: TableShape = SHAPE) -> dict[int, RelationVersion]:
    """Relation messages by version, as the net change takes them."""
    return {version: RelationVersion.of(message, shape) for version, message in messages.items()}


def relation_message(replica_identity: str, relname: str = "t") -> bytes:
    columns = tuple(
        RelationColumn(name, oid, -1, index in KEY or replica_identity == "f")
        for index, (name, oid) in enumerate(zip(_NAMES, _TYPES, strict=True))
    )
    return write_message(Relation(RELID, "public", relname, replica_identity, columns))


def log_rows(
    messages: Sequence[Message], version: int | Sequence[int], positions: Sequence[tuple[int, int]] | None = None
) -> pa.Table:
    """As the change log holds them; each in a transaction of its own unless positions say otherwise."""
    places = positions or [(index + 1, 0) for index in range(len(messages))]
    versions = [version] * len(messages) if isinstance(version, int) else version
    rows = [
        {
            "window": 1,
            "commit_lsn": commit_lsn,
            "ordinal": ordinal,
            "xid": commit_lsn,
            "commit_time": datetime.fromtimestamp(commit_lsn, UTC),
            "origin": None,
            "kind": write_message(message)[:1].decode(),
            "relid": RELID,
            "version": None if isinstance(message, Truncate) else its_version,
            "data": write_message(message),
        }
        for message, its_version, (commit_lsn, ordinal) in zip(messages, versions, places, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)


@dataclass
class History:
    """``before`` and ``after`` are the table's rows by key; ``rows`` the change log between them. ``messages`` are its
    changes in order, ``positions`` theirs, and ``states`` the table behind each. ``shape`` knows the leaves of a
    partitioned table."""

    before: dict[Row, Row]
    after: dict[Row, Row]
    rows: pa.Table
    relations: dict[int, RelationVersion]
    messages: Sequence[Message] = ()
    positions: Sequence[tuple[int, int]] = ()
    states: Sequence[dict[Row, Row]] = field(default_factory=tuple)
    shape: TableShape = SHAPE


KEYS = st.tuples(st.sampled_from([b"1", b"2", b"3", b"-4"]), st.sampled_from([b"a", b""]))
VALUES = st.none() | st.sampled_from([b"", b"x", b"yy", "é".encode()])
NUMBERS = st.none() | st.sampled_from([b"0", b"-7", b"42"])


@st.composite
def histories(draw: st.DrawFn, *, truncates: bool = True, max_changes: int = 25) -> History:
    """What a server can send: unchanged TOAST in any update, key moves to free keys, chains, swaps, truncates.

    Of a partitioned table the letter of an old tuple follows the root's identity, its content the leaf's own.
    """
    identity = draw(st.sampled_from("df"))
    leaves = draw(st.sampled_from(["", "d", "f", "df"]))  # none: the table is not partitioned
    shape = replace(SHAPE, leaf_identities=tuple(None if leaf == "f" else _NAMES[: len(KEY)] for leaf in leaves))
    before: dict[Row, Row] = {
        key: (*key, draw(NUMBERS), draw(VALUES), draw(VALUES)) for key in draw(st.lists(KEYS, unique=True, max_size=4))
    }
    table = dict(before)
    messages, states = [], []
    for _ in range(draw(st.integers(0, max_changes))):
        whole = draw(st.sampled_from(leaves or identity)) == "f"
        messages.append(draw(_change(table, identity, whole, truncates)))
        states.append(dict(table))
    positions = sorted(
        draw(
            st.lists(
                st.tuples(st.integers(1, 6), st.integers(0, 30)),
                unique=True,
                min_size=len(messages),
                max_size=len(messages),
            )
        )
    )
    # two Relation messages that differ in what the lake does not see
    relations = {fingerprint(wire): wire for wire in (relation_message(identity), relation_message(identity, "old"))}
    versions = [draw(st.sampled_from(sorted(relations))) for _ in messages]
    rows = log_rows(messages, versions, positions)
    shuffled = rows.take(pa.array(draw(st.permutations(range(len(rows)))), pa.int64()))
    return History(before, table, shuffled, mapped(relations), messages, positions, states, shape)


@st.composite
def _change(draw: st.DrawFn, table: dict[Row, Row], identity: str, whole: bool, truncates: bool) -> Message:
    """One more change; ``table`` follows it. ``identity``: of the table; ``whole``: old tuples hold the whole row."""
    free = [key for key in _all_keys() if key not in table]
    kinds = ["insert"] * bool(free) + ["update", "update", "move", "delete"] * bool(table) + ["truncate"] * truncates
    kind = draw(st.sampled_from(kinds or ["insert"]))
    if kind == "truncate" and draw(st.integers(0, 3)) == 0:
        table.clear()
        return Truncate((RELID + 1, RELID), cascade=True, restart_identity=False)
    if kind in ("insert", "truncate") or not table:
        key = draw(st.sampled_from(free)) if free else None
        if key is not None:
            table[key] = (*key, draw(NUMBERS), draw(VALUES), draw(VALUES))
            return Insert(RELID, table[key])
    key = draw(st.sampled_from(sorted(table)))
    old = table.pop(key)
    if kind == "delete":
        return Delete(RELID, *_by_letter(identity, old if whole else _key_only(old)))
    moves = kind == "move" and bool(free)
    to = draw(st.sampled_from(free)) if moves else key
    kept = draw(st.sets(st.sampled_from(TOASTED)))
    new: list[ColumnValue] = [*to, draw(NUMBERS), draw(VALUES), draw(VALUES)]
    stored = [old[index] if index in kept else new[index] for index in range(WIDTH)]
    # a null is never TOASTed
    wire = tuple(
        UNCHANGED_TOAST if index in kept and old[index] is not None else stored[index] for index in range(WIDTH)
    )
    table[to] = tuple(stored)  # type: ignore[arg-type]
    if whole:
        return Update(RELID, *_by_letter(identity, old), wire)
    old_key = _key_only(old) if moves or draw(st.booleans()) else None
    return Update(RELID, *_by_letter(identity, old_key), wire)


def _by_letter(identity: str, old: TupleData | None) -> tuple[TupleData | None, TupleData | None]:
    """As K or as O."""
    return (None, old) if identity == "f" else (old, None)


def _all_keys() -> list[Row]:
    return [(number, part) for number in (b"1", b"2", b"3", b"-4") for part in (b"a", b"")]


def _key_only(row: Row) -> TupleData:
    return tuple(value if index in KEY else None for index, value in enumerate(row))


def typed(table: dict[Row, Row]) -> dict[tuple[object, ...], tuple[object, ...]]:
    return {_typed_key(key): _typed_row(row) for key, row in table.items()}


def _typed_key(key: Row) -> tuple[object, ...]:
    number, part = key
    return int(number or b""), (part or b"").decode()


def _typed_row(row: Row) -> tuple[object, ...]:
    text = [None if value is None else value.decode() for value in row]
    return int(text[0] or ""), text[1], None if text[2] is None else int(text[2]), text[3], text[4]


def applied(
    before: dict[tuple[object, ...], tuple[object, ...]], rows: pa.Table, truncated: bool
) -> dict[tuple[object, ...], tuple[object, ...]]:
    """As the MERGE does: all rows at once, kept values read from the table as it was."""
    after = {} if truncated else dict(before)
    written = rows.to_pylist()
    for row in written:
        key = tuple(row[f"v{index}"] for index in KEY)
        if row["op"] == 0:
            assert key in before, "a delete of a row that was not there"
            assert not truncated
            assert all(row[f"v{index}"] is None for index in range(WIDTH) if index not in KEY)
            del after[key]
    keys = [tuple(row[f"v{index}"] for index in KEY) for row in written]
    assert len(keys) == len(set(keys)), "two rows of one key"
    for row in written:
        key = tuple(row[f"v{index}"] for index in KEY)
        if row["op"] == 1:
            origin = tuple(row.get(f"f{index}") for index in KEY)
            old_row = before.get(key if origin[0] is None else origin)
            values = [row[f"v{index}"] for index in range(WIDTH)]
            for index in range(WIDTH):
                if row.get(f"u{index}"):
                    assert old_row is not None
                    assert values[index] is None
                    values[index] = old_row[index]
            after[key] = tuple(values)
    return after
