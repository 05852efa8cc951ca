"""The columnar decoder of ``test_decoding``'s lines equals ``read_row`` on every input, damaged ones included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decode import line_columns as text_columns
from spark_jobs.decode.columnar import message_bounds
from spark_jobs.decode.line_columns import decode_lines
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.messages import Change, Insert
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.logicalrep.test_decoding.changes import read_row
from spark_jobs.logicalrep.test_decoding.lines import Form, NamedValue
from tests.decode.row_changes import change_at
from tests.decode.row_lines import FINE, MOVED, RELATION, assert_equal, decode
from tests.strategies import damaged
from tests.text_strategies import TEXTS, line_of, relations, row_changes
from tests.text_wire import write_line


@st.composite
def cases(draw: st.DrawFn) -> tuple[Relation, list[bytes]]:
    relation = draw(relations())
    extra = draw(st.none() | TEXTS.map(lambda text: NamedValue("generated", "text", Form.QUOTED, text)))
    changes = draw(st.lists(row_changes(relation), max_size=8))
    return relation, [write_line(line_of(change, relation, extra)) for change in changes]


@given(cases())
def test_equals_the_object_decoder(case: tuple[Relation, list[bytes]]) -> None:
    relation, lines = case
    assert decode(lines, relation) == [read_row(line, relation) for line in lines]


@given(st.data(), cases())
def test_damage_is_refused_by_both_or_read_alike(data: st.DataObject, case: tuple[Relation, list[bytes]]) -> None:
    relation, lines = case
    lines = lines or [b""]
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = data.draw(damaged(lines[at]))
    assert_equal(lines, relation)


@pytest.mark.slow
def test_every_cut_and_every_flipped_byte() -> None:
    for wire in (FINE, MOVED):
        variants = [wire[:size] for size in range(len(wire))] + [wire + b" ", wire + b"'"]
        variants += [
            wire[:at] + bytes([value]) + wire[at + 1 :] for at in range(len(wire)) for value in b"'\" :a[]1n\0\xff"
        ]
        for variant in variants:
            assert_equal([FINE, variant, FINE], RELATION)


def test_chunks_partitions_and_other_columns_do_not_change_the_result() -> None:
    lines = []
    for number in range(40):
        leaf = b"t" if number % 3 else b'"Leaf %d"' % (number % 2)
        gone = b" gone[integer]:5" if number % 5 == 0 else b""
        lines.append(
            b"table public.%s: INSERT: id[bigint]:%d%s \"user\"[text]:'%d' b[bit]:null" % (leaf, number, gone, number)
        )
        lines.append(b"table public.%s: DELETE: id[bigint]:%d" % (leaf, number))
        lines.append(b"table public.turned: DELETE: id[bigint]:%d" % number)
        lines.append(b"table public.turned: INSERT: \"user\"[text]:'%d' id[bigint]:%d b[bit]:null" % (number, number))
    for size in (1, 3, 7, 1000):
        assert decode(lines, RELATION, at_once=size) == [read_row(line, RELATION) for line in lines]


def test_plain_lines_are_read_without_python_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"table public.t: INSERT: id[bigint]:%d \"user\"[text]:'x''%d' b[bit]:B'01'" % (n, n) for n in range(5000)]
    lines += [b"table public.t: DELETE: id[bigint]:%d" % n for n in range(5000)]
    read = 0

    def counting(line: bytes, relation: Relation) -> Change:
        nonlocal read
        read += 1
        return read_row(line, relation)

    monkeypatch.setattr(text_columns, "read_row", counting)
    data, bounds = message_bounds(pa.array(lines, pa.binary()))
    decoded = decode_lines(data, bounds[:-1], bounds[1:], RELATION, lambda row: Position(Lsn(7), row))
    assert read <= 2
    assert change_at(decoded, 4999) == Insert(16384, (b"4999", b"x'4999", b"01"))
    assert np.count_nonzero(decoded.old_slots >= 0) == 5000
