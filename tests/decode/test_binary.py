"""Binary values without a server: recorded bytes, damage, and the vectorised ways against the readable one."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decode.binary import value_text as reference
from spark_jobs.decode.binary.cast import cast_binary, text_of_binary
from spark_jobs.decode.binary.float_text import float4_text, float8_text
from spark_jobs.errors import DecodeError
from spark_jobs.schema.lake_types import lake_type
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts, TypeFacts
from spark_jobs.schema.wire_type import Family, WireType, unreadable_in_binary, wire_type
from tests.decode.binary_values import RECORDED, assert_same


@pytest.mark.parametrize(("typid", "data", "text"), RECORDED)
def test_recorded_bytes(typid: int, data: str, text: str | None) -> None:
    """None: not what PostgreSQL sends, so refused."""
    column, known = pa.array([bytes.fromhex(data), None], pa.binary()), wire_type(typid)
    if text is None:
        with pytest.raises(DecodeError, match=r"s\.t column c: not the binary form of"):
            text_of_binary(column, known, name="c", table="s.t")
        return
    assert reference.value_text(bytes.fromhex(data), known) == text
    assert text_of_binary(column, known, name="c", table="s.t").to_pylist() == [text.encode(), None]


def test_digits_are_postgresqls_not_pythons() -> None:
    """A midpoint between two floats is no way to write either: PostgreSQL's digits lie strictly inside."""
    assert float8_text(9007199254740996 * 2.0**10) != ""
    assert float8_text(5.684341886080802e-14) == "5.684341886080802e-14"
    assert (float8_text(1e15), float8_text(1e14), float8_text(0.0001), float8_text(0.00001)) == (
        "1e+15",
        "100000000000000",
        "0.0001",
        "1e-05",
    )
    assert (float8_text(-0.0), float8_text(float("nan")), float8_text(-1.5)) == ("-0", "NaN", "-1.5")
    assert (float4_text(1e6), float4_text(999999.0), float4_text(16777216.0)) == ("1e+06", "999999", "1.6777216e+07")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float8_text_reads_back(value: float) -> None:
    assert struct.pack(">d", float(float8_text(value))) == struct.pack(">d", value)


WIDTHS = {16: 1, 21: 2, 23: 4, 26: 4, 20: 8, 700: 4, 701: 8, 1082: 4, 1083: 8, 1114: 8, 1184: 8, 2950: 16, 5069: 8}
LAKE = {typid: lake_type(typid, -1) for typid in (*WIDTHS, 25, 3802, 1700)}


@st.composite
def numerics(draw: st.DrawFn, scale: int | None = None) -> bytes:
    groups = draw(st.lists(st.sampled_from([0, 1, 10, 99, 1000, 4567, 9999]), max_size=7))
    while groups and not groups[0]:
        groups.pop(0)
    while groups and not groups[-1]:
        groups.pop()
    weight = draw(st.integers(-3, 6)) if groups else 0
    sign = draw(st.sampled_from([0, 0x4000, 0xC000, 0xD000, 0xF000, 0x1234] if not groups else [0, 0x4000]))
    dscale = draw(st.integers(0, 20)) if scale is None else scale
    return struct.pack(f">HhHH{len(groups)}H", len(groups), weight, sign, dscale, *groups)


@st.composite
def wire_values(draw: st.DrawFn) -> tuple[int, list[bytes | None]]:
    """Values of one type, most of them right, some of another width or with bytes that mean nothing."""
    typid = draw(st.sampled_from(sorted(LAKE)))
    if typid == 1700:
        one = numerics()
    elif typid in WIDTHS:
        width = WIDTHS[typid]
        near = st.integers(-(10**6), 10**6).map(lambda n: (n % (1 << 8 * width)).to_bytes(width, "big"))
        one = st.one_of(near, st.binary(min_size=width, max_size=width), st.binary(max_size=16))
    else:
        one = st.one_of(st.text(max_size=5).map(lambda t: b"\1" + t.encode()), st.binary(max_size=5))
    good = draw(st.booleans())
    values = draw(st.lists(st.one_of(st.none(), one), max_size=8))
    if good and typid in WIDTHS:
        values = [value for value in values if value is None or len(value) == WIDTHS[typid]]
    return typid, values


@given(wire_values())
def test_columns_are_read_as_their_values_one_by_one(case: tuple[int, list[bytes | None]]) -> None:
    typid, values = case
    known, column = wire_type(typid), pa.array([b"cut off", *values], pa.binary()).slice(1)
    try:
        texts = [None if value is None else reference.value_text(value, known) for value in values]
    except ValueError:
        with pytest.raises(DecodeError):
            cast_binary(column, known, LAKE[typid], name="c", table="s.t", on_unrepresentable="null")
        return
    if known.family is not Family.TEXT:
        got = text_of_binary(column, known, name="c", table="s.t")
        got.validate(full=True)
        assert got.to_pylist() == [None if text is None else text.encode() for text in texts]
    assert_same(column, pa.array(texts, pa.string()), known, LAKE[typid])


@given(st.sampled_from([(5, 0), (10, 2), (15, 15), (18, 4), (38, 6), (38, 38)]), st.data())
def test_decimals_are_those_of_the_text(case: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = case
    values = data.draw(st.lists(st.one_of(st.none(), numerics(scale)), max_size=6))
    column, to = pa.array(values, pa.binary()), lake_type(1700, (precision << 16 | scale) + 4)
    try:
        texts = [None if value is None else reference.value_text(value, wire_type(1700)) for value in values]
    except ValueError:
        with pytest.raises(DecodeError):
            cast_binary(column, wire_type(1700), to, name="c", table="s.t", on_unrepresentable="null")
        return
    assert_same(column, pa.array(texts, pa.string()), wire_type(1700), to)


CONTAINERS = st.sampled_from([1007, 1009, 1231, 3904, 3906, 4451, 3614, 3615, 869, 1562, 602, 604, 5038, 22])
RIGHT = {
    1007: "00000001000000010000001700000002000000000000000400000007ffffffff",
    1009: "0000000100000000000000190000000100000001000000046e756c6c",
    3904: "0200000004000000010000000400000005",
    4451: "000000010000001102" + "0000000400000001" + "0000000400000005",
    3614: "0000000161000002400300050000"[:24],
    3615: "0000000302020101000062000101000061" + "00",
    869: "0380001020010db8000000000000000000000001",
    1562: "00000003a0",
    602: "0100000001" + "3ff8000000000000c000000000000000",
    5038: "00000001" + "000000000000000a" + "0000000000000014" + "000000000000000a",
}


@given(CONTAINERS, st.binary(max_size=60), st.data())
def test_damage_is_a_decode_error_never_another(typid: int, noise: bytes, data: st.DataObject) -> None:
    right = bytes.fromhex(RIGHT.get(typid, ""))
    at = data.draw(st.integers(0, len(right)))
    for damaged in (noise, right[:at], right[:at] + noise, right[:at] + noise[:1] + right[at + 1 :], right + b"\0"):
        try:
            text_of_binary(pa.array([damaged], pa.binary()), wire_type(typid), name="c", table="s.t")
        except DecodeError as error:
            assert str(error).startswith("s.t column c: not the binary form of")  # noqa: PT017 - it may also be read


def column_facts(typid: int, attname: str = "c", attgenerated: str = "") -> ColumnFacts:
    return ColumnFacts(1, attname, typid, -1, "t", typid, -1, "o", False, attgenerated)


def test_what_cannot_be_read_is_known_beforehand() -> None:
    types = (
        TypeFacts(20001, "public.citext", "b", ",", "textout", "textsend"),
        TypeFacts(20002, "public.odd", "b", ",", "$libdir/odd:odd_out", "$libdir/odd:odd_send"),
        TypeFacts(20003, "public.odd[]", "b", ",", "array_out", "array_send", (20002,)),
        TypeFacts(20004, "public.silent", "b", ",", "$libdir/odd:silent_out", ""),
        TypeFacts(20005, "public.pair", "c", ",", "record_out", "record_send", (23, 2205)),
        TypeFacts(20006, "public.isbn", "b", ",", "$libdir/isn:isn_out", "int8send"),
    )
    readable = [column_facts(typid, f"r{typid}") for typid in (23, 25, 1007, 20001, 20004, 1033)]
    unreadable = [column_facts(typid, f"u{typid}") for typid in (2205, 2210, 1034, 20002, 20003, 20005, 20006, 30000)]
    generated = column_facts(2205, "g", "s")
    facts = RelationFacts(1, "s", "t", "d", ("c",), ("c",), (*readable, *unreadable, generated), types)
    assert unreadable_in_binary(facts) == tuple(unreadable)
    with pytest.raises(DecodeError, match="form of 2205"):
        text_of_binary(pa.array([b"\0\0\0\1"], pa.binary()), wire_type(2205), name="c", table="s.t")


def test_a_record_names_the_types_of_its_columns() -> None:
    """One that was made before ALTER TYPE has other attributes than the catalogue knows now."""
    pair = WireType(20001, "pair", Family.RECORD, parts=(wire_type(25),))
    data = struct.pack(">i", 2) + struct.pack(">Iii", 23, 4, 7) + struct.pack(">Ii", 25, 3) + b"a b"
    assert reference.value_text(data, pair) == '(7,"a b")'
    with pytest.raises(ValueError, match="unknown type"):
        reference.value_text(struct.pack(">iIii", 1, 30000, 4, 7), pair)
