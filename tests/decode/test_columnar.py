"""The columnar decoder equals ``read_change`` on every input, damaged ones included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decode.columnar import decode_changes, message_bounds
from spark_jobs.decode.gather import gather
from spark_jobs.decode.tuple_vectors import TEXT
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Change, Delete, Insert, Update
from spark_jobs.logicalrep.pgoutput.read_message import read_change
from tests.decode.row_changes import RELID, decode, outcome, relation
from tests.strategies import changes, damaged
from tests.wire import write_message

SAME_RELATION = st.integers(0, 4).flatmap(
    lambda width: st.tuples(st.just(width), st.lists(changes(st.just(RELID), width), max_size=12))
)


@given(SAME_RELATION)
def test_equals_the_object_decoder(case: tuple[int, list[Change]]) -> None:
    width, messages = case
    wires = [write_message(message) for message in messages]
    assert decode(wires, width) == [read_change(wire, relation(width)) for wire in wires] == messages


@given(st.data(), SAME_RELATION)
def test_damage_is_refused_by_both_or_read_alike(data: st.DataObject, case: tuple[int, list[Change]]) -> None:
    width, messages = case
    wires = [write_message(message) for message in messages] or [b""]
    at = data.draw(st.integers(0, len(wires) - 1))
    wires[at] = data.draw(damaged(wires[at]))
    expected = outcome(wires, width)
    if isinstance(expected, LogicalRepError):
        with pytest.raises(DecodeError) as refused:
            decode(wires, width)
        assert f"change at 0/7#{at} of public.t is not understood: {expected}" in str(refused.value)
    else:
        assert decode(wires, width) == expected


@pytest.mark.slow
def test_every_cut_and_every_flipped_byte() -> None:
    wire = write_message(Update(RELID, (b"1", None), None, (b"22", UNCHANGED_TOAST)))
    fine = write_message(Insert(RELID, (b"1", None)))
    variants = [wire[:size] for size in range(len(wire))] + [wire + b"n"]
    variants += [wire[:at] + bytes([value]) + wire[at + 1 :] for at in range(len(wire)) for value in range(256)]
    for variant in variants:
        expected = outcome([fine, variant, fine], 2)
        if isinstance(expected, LogicalRepError):
            with pytest.raises(DecodeError):
                decode([fine, variant, fine], 2)
        else:
            assert decode([fine, variant, fine], 2) == expected


def test_a_message_cut_at_the_end_of_the_buffer_does_not_borrow_the_next_ones_bytes() -> None:
    whole = write_message(Insert(RELID, (b"12345678",)))
    with pytest.raises(DecodeError, match="0/7#0"):
        decode([whole[:-4], whole[-4:], whole], 1)


def test_chunks_do_not_change_the_result() -> None:
    messages: list[Change] = []
    for number in range(50):
        key = str(number).encode()
        messages += [Insert(RELID, (key, b"x")), Update(RELID, (key, None), None, (b"n" + key, None))]
        messages += [Delete(RELID, (b"n" + key, None), None), Update(RELID, None, None, (key, UNCHANGED_TOAST))]
    wires = [write_message(message) for message in messages]
    for size in (1, 3, 7, 1000):
        assert decode(wires, 2, at_once=size) == messages


def test_large_binary_is_taken_too() -> None:
    data, bounds = message_bounds(pa.array([write_message(Insert(RELID, (b"1",)))], pa.large_binary()))
    decoded = decode_changes(data, bounds[:-1], bounds[1:], relation(1), lambda row: Position(Lsn(7), row))
    assert decoded.new.kinds.tolist() == [[TEXT]]


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.booleans()), max_size=20)


@given(st.binary(min_size=40, max_size=40), SPANS, st.booleans())
def test_gather_copies_the_spans(data: bytes, spans: list[tuple[int, int, bool]], ascending: bool) -> None:
    if ascending:
        spans = [(index * 2, 2, valid) for index, (_, _, valid) in enumerate(spans)]
    starts = np.array([span[0] for span in spans], dtype=np.int64)
    lengths = np.array([span[1] for span in spans], dtype=np.int32)
    valid = np.array([span[2] for span in spans], dtype=bool)
    got = gather(np.frombuffer(data, dtype=np.uint8), starts, lengths, valid)
    got.validate(full=True)
    assert got.to_pylist() == [data[start : start + size] if there else None for start, size, there in spans]
