"""Lines of ``test_decoding`` through the columnar decoder and, as the oracle, through ``read_row``."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.decode import line_columns as text_columns
from spark_jobs.decode.columnar import message_bounds
from spark_jobs.decode.line_columns import decode_lines
from spark_jobs.errors import DecodeError, SchemaChangeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.messages import Change
from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.logicalrep.test_decoding.changes import TableAlteredError, read_row
from tests.decode.row_changes import change_at

RELATION = Relation(
    16384,
    "public",
    "t",
    "d",
    (RelationColumn("id", 20, -1, True), RelationColumn("user", 25, -1, False), RelationColumn("b", 1560, -1, False)),
)


def decode(lines: list[bytes], relation: Relation, *, at_once: int = text_columns.LINES_AT_ONCE) -> list[Change]:
    data, bounds = message_bounds(pa.array([b"before'", *lines, b"'behind"], pa.binary()).slice(1, len(lines)))
    decoded = decode_lines(data, bounds[:-1], bounds[1:], relation, lambda row: Position(Lsn(7), row), at_once=at_once)
    assert len(decoded) == len(lines)
    return [change_at(decoded, row) for row in range(len(decoded))]


def outcome(lines: list[bytes], relation: Relation) -> list[Change] | LogicalRepError:
    try:
        return [read_row(line, relation) for line in lines]
    except LogicalRepError as error:
        return error


def assert_equal(lines: list[bytes], relation: Relation) -> None:
    expected = outcome(lines, relation)
    if isinstance(expected, LogicalRepError):
        kind = SchemaChangeError if isinstance(expected, TableAlteredError) else DecodeError
        with pytest.raises(kind) as refused:
            decode(lines, relation)
        assert " ".join(str(expected).split()) in str(refused.value)
        assert "0/7#" in str(refused.value)
    else:
        assert decode(lines, relation) == expected


FINE = b"table public.t: INSERT: id[bigint]:1 \"user\"[text]:'it''s' b[bit]:B'1'"
MOVED = (
    b"table public.t: UPDATE: old-key: id[bigint]:1 new-tuple: id[bigint]:2"
    b" \"user\"[text]:'''' b[bit]:unchanged-toast-datum"
)
