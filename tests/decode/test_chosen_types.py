"""Types that the configuration chooses: what fits is held exactly, the rest follows the policy; with other oracles."""

from __future__ import annotations

import json
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.decode.values import cast_text
from spark_jobs.errors import DecodeError, UnrepresentableError
from spark_jobs.options.column_options import ChosenType, ChosenTypes, OnUnrepresentable
from spark_jobs.schema.lake_types import LakeKind, LakeType

WIDE = Context(prec=200, rounding=ROUND_HALF_UP)


def decimal(precision: int, scale: int) -> LakeType:
    return LakeType(LakeKind.DECIMAL, precision, scale, chosen=True)


def array(element: LakeType) -> LakeType:
    return LakeType(LakeKind.ARRAY, element=element, chosen=True)


STRINGS, INTS = array(LakeType(LakeKind.STRING)), array(LakeType(LakeKind.INT))


def cast(texts: list[str | None], to: LakeType, policy: OnUnrepresentable = "null") -> list[object]:
    column = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    result = cast_text(column, to, name="c", table="s.t", on_unrepresentable=policy).values
    result.validate(full=True)
    assert result.type == to.arrow
    # a slice of a longer column, whose nulls take bytes, is read alike
    padded = pa.concat_arrays([pa.array([b"%"], pa.binary()), column])[1:]
    assert cast_text(padded, to, name="c", table="s.t", on_unrepresentable=policy).values.equals(result)
    return list(result.to_pylist())


# numbers as numeric_out prints them
PRINTED = st.builds(
    lambda sign, whole, fraction: (
        f"{sign if int(whole + (fraction or '0')) else ''}{whole}{fraction and '.' + fraction}"
    ),
    st.sampled_from(["", "-"]),
    st.integers(0, 10**45).map(str),
    st.from_regex(r"\A[0-9]{0,45}\Z"),
)
SPECIAL = st.sampled_from(["NaN", "Infinity", "-Infinity"])
TYPES = st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(lambda both: both[1] <= both[0])


@given(st.lists(st.none() | PRINTED | SPECIAL), TYPES)
def test_a_decimal_is_exact_or_not_there(texts: list[str | None], wanted: tuple[int, int]) -> None:
    precision, scale = wanted
    most = Decimal(10) ** (precision - scale)

    def expected(text: str | None) -> Decimal | None:
        value = None if text is None else Decimal(text)
        if value is None or not value.is_finite() or abs(value) >= most:
            return None
        rounded = value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
        return rounded if rounded == value else None

    exact = [expected(text) for text in texts]
    assert cast(texts, decimal(precision, scale)) == exact
    lost = sum(text is not None and value is None for text, value in zip(texts, exact, strict=True))
    if lost:
        with pytest.raises(UnrepresentableError, match=f"^s.t column c: .* in {lost} of {len(texts)} values"):
            cast(texts, decimal(precision, scale), "error")
    else:
        assert cast(texts, decimal(precision, scale), "error") == exact


@given(st.lists(st.none() | PRINTED | SPECIAL), TYPES)
def test_a_clamped_decimal_is_the_nearest(texts: list[str | None], wanted: tuple[int, int]) -> None:
    precision, scale = wanted
    unit = Decimal(1).scaleb(-scale)
    most = WIDE.subtract(Decimal(10) ** (precision - scale), unit)

    def expected(text: str | None) -> Decimal | None:
        if text is None or text == "NaN":
            return None
        value = max(min(Decimal(text), most), most.copy_negate())
        return value.quantize(unit, context=WIDE)

    assert cast(texts, decimal(precision, scale), "clamp") == [expected(text) for text in texts]


@pytest.mark.parametrize("text", ["1e5", "+1", "01", "1.", ".5", "--1", "1.2.3", " 1", "inf", "", "nan", "1_0"])
def test_what_numeric_does_not_print_is_refused_under_each_policy(text: str) -> None:
    for policy in ("error", "null", "clamp"):
        with pytest.raises(DecodeError):
            cast([text, "1"], decimal(10, 2), policy)


def printed(elements: list[str | None]) -> str:
    """As ``array_out`` does, element by element: another way than the decoder's."""

    def quoted(text: str | None) -> str:
        if text is None:
            return "NULL"
        if text == "" or text.upper() == "NULL" or re.search(r'[{},"\\\s]', text, re.ASCII):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return text

    return "{" + ",".join(map(quoted, elements)) + "}"


TEXTS = st.text(st.sampled_from('ab,{}"\\ \n\tNULLnul-[]=:é🐘'), max_size=6) | st.sampled_from(["NULL", "null", ""])
ARRAYS = st.lists(st.none() | TEXTS, max_size=5)


@given(st.lists(st.none() | ARRAYS, max_size=8))
def test_what_an_array_holds_comes_back(arrays: list[list[str | None] | None]) -> None:
    texts = [None if elements is None else printed(elements) for elements in arrays]
    assert cast(texts, STRINGS, "error") == arrays


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=5)))
def test_numbers_of_arrays_come_back(arrays: list[list[int | None] | None]) -> None:
    texts = [
        None if elements is None else printed([None if e is None else str(e) for e in elements]) for elements in arrays
    ]
    assert cast(texts, INTS, "error") == arrays


def test_arrays_of_another_shape_have_no_counterpart() -> None:
    texts = ["{1,2}", "[0:1]={5,6}", "{{1,2},{3,4}}", None, "{}", "[-1:0][2:3]={{1,2},{3,NULL}}"]
    flat: list[object] = [[1, 2], None, None, None, [], None]
    assert cast(texts, INTS, "null") == flat
    assert cast(texts, INTS, "clamp") == flat
    with pytest.raises(UnrepresentableError, match=r"more dimensions than one, .* in 3 of 6 values"):
        cast(texts, INTS, "error")
    assert cast(['{"{{",a}', '{{"a,}"}}'], STRINGS) == [["{{", "a"], None]


def test_elements_follow_the_policy_one_by_one() -> None:
    dates = array(LakeType(LakeKind.DATE))
    texts = ["{2024-01-01,infinity,NULL}", "{-infinity}", None, "{2024-02-29}", "{{infinity}}", "{}"]

    def shown(policy: OnUnrepresentable) -> list[object]:
        return [None if row is None else [str(day) for day in row] for row in cast(texts, dates, policy)]  # type: ignore[attr-defined]

    assert shown("null") == [["2024-01-01", "None", "None"], ["None"], None, ["2024-02-29"], None, []]
    assert shown("clamp") == [["2024-01-01", "9999-12-31", "None"], ["0001-01-01"], None, ["2024-02-29"], None, []]
    with pytest.raises(UnrepresentableError, match="in 3 of 6 values"):
        cast(texts, dates, "error")


DAMAGED = [
    "", "{", "}", "1", "{1", "1}", "{1,}", "{,1}", "{,}", "{1{2}", "{1}2}", '{"a}', '{a"}', '{a"b"}', '{"a"b}',
    '{"a""b"}', "{a b}", "{a\\b}", '{"a\\"}', "{null}", "{Null}", "[0:1]{1,2}", "{1}}", "[a:1]={1}", "{{1}",
    '{"', '{"}', "{ }",
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_what_array_out_does_not_write_is_refused(text: str) -> None:
    for policy in ("error", "null", "clamp"):
        with pytest.raises(DecodeError):
            cast(['{"a"}', text, "{b}"], STRINGS, policy)


@given(st.text(st.sampled_from('{},"\\ aNUL'), max_size=12))
def test_no_other_text_is_taken_for_an_array(text: str) -> None:
    """What is taken prints as it was: so nothing is guessed."""
    try:
        (elements,) = cast([text], STRINGS)
    except DecodeError:
        return
    assert elements is None or printed(elements) == text  # type: ignore[arg-type]


@given(st.lists(st.none() | st.uuids()))
def test_the_bytes_of_a_uuid(values: list[UUID | None]) -> None:
    texts = [None if value is None else str(value) for value in values]
    expected = [None if value is None else value.bytes for value in values]
    assert cast(texts, LakeType(LakeKind.BINARY, chosen=True), "error") == expected


@pytest.mark.parametrize("text", ["", "a" * 36, "0" * 32, "{00000000-0000-0000-0000-000000000000}"])
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        cast([text], LakeType(LakeKind.BINARY, chosen=True))


@given(st.dictionaries(st.text(min_size=1), st.sampled_from(["array", "binary", "decimal(38,10)", "decimal(1,0)"])))
def test_the_word_of_chosen_types_names_them_all(types: dict[str, str]) -> None:
    chosen = ChosenTypes.of({name: ChosenType.parse(text) for name, text in types.items()})
    assert "-" not in chosen.word
    assert ChosenTypes.from_word(chosen.word) == chosen
    assert chosen.changed_since(chosen) == ""


def test_what_changed_in_words() -> None:
    before = ChosenTypes.of({"a": ChosenType.parse("array"), "b": ChosenType.parse("decimal(38,10)")})
    since = ChosenTypes.of({"b": ChosenType.parse("decimal(38,9)"), "a": ChosenType.parse("array")})
    assert since.changed_since(before) == "the configured type of column b was changed"
    assert ChosenTypes().changed_since(before) == "the configured types of columns a, b were changed"


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**45), 10**45)
    | st.decimals(allow_nan=False, allow_infinity=False, places=40, min_value=-1, max_value=1)
    | st.sampled_from([1e-7, 1e300, 0.5, -0.25])
    | st.text(st.sampled_from('e1E5"\\\\{}[],:. é'), max_size=45),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.none() | DOCUMENTS, max_size=6), st.booleans())
@example([1e-7, 1e-7], False)  # side by side in one buffer
@example([12345678901234567890, 12345678901234567890], False)
def test_numbers_that_a_variant_does_not_hold(documents: list[object], ascii_only: bool) -> None:
    """The oracle is the standard library's parser, which hands over the text of each number."""
    texts = [json.dumps(each, default=str, ensure_ascii=ascii_only) for each in documents]
    texts = [re.sub(r'"(-?\d\.\d{40})"', r"\1", text) for text in texts]  # decimals, which dumps does not write
    too_long: list[bool] = []

    def number(text: str) -> str:
        too_long[-1] |= "e" in text.lower() or sum(byte.isdigit() for byte in text) > 38
        return text

    for text in texts:
        too_long.append(False)
        json.loads(text, parse_int=number, parse_float=number)
    variants = LakeType(LakeKind.VARIANT, chosen=True)
    expected = [None if wrong else text for text, wrong in zip(texts, too_long, strict=True)]
    assert cast([*texts, None], variants, "null") == cast([*texts, None], variants, "clamp") == [*expected, None]
    if any(too_long):
        with pytest.raises(UnrepresentableError, match=f"in {sum(too_long)} of {len(texts)} values"):
            cast(list(texts), variants, "error")
