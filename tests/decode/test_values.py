"""Each lake type against literal texts: exact values, unrepresentable ones, and malformed ones."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decode.binary.cast import cast_binary
from spark_jobs.decode.values import OnUnrepresentable, cast_text
from spark_jobs.errors import DecodeError, UnrepresentableError
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.wire_type import wire_type

UTC = dt.UTC
BIGINT = LakeType(LakeKind.BIGINT)
DECIMAL = LakeType(LakeKind.DECIMAL, 10, 2)


def cast(
    texts: list[str | None], lake_type: LakeType | LakeKind, on_unrepresentable: OnUnrepresentable = "error"
) -> list[object]:
    wanted = lake_type if isinstance(lake_type, LakeType) else LakeType(lake_type)
    as_string = pa.array(texts, pa.string())
    result = cast_text(as_string, wanted, name="c", table="s.t", on_unrepresentable=on_unrepresentable).values
    assert result.type == wanted.arrow
    assert len(result) == len(texts)
    result.validate(full=True)
    # binary in, a slice in, other nulls around: the same
    padded = pa.concat_arrays([pa.array([None, "junk"], pa.string()), as_string]).cast(pa.binary()).slice(2)
    again = cast_text(padded, wanted, name="c", table="s.t", on_unrepresentable=on_unrepresentable).values
    assert repr(again.to_pylist()) == repr(result.to_pylist())
    return list(result.to_pylist())


@pytest.mark.parametrize(
    ("kind", "texts", "values"),
    [
        (LakeKind.BOOLEAN, ["t", None, "f"], [True, None, False]),
        (LakeKind.SMALLINT, ["-32768", "32767", None], [-32768, 32767, None]),
        (LakeKind.INT, ["-2147483648", "0"], [-(2**31), 0]),
        (LakeKind.BIGINT, ["-9223372036854775808", "4294967295"], [-(2**63), 2**32 - 1]),
        (LakeKind.FLOAT, ["3.4028235e+38", "1e-45", "-0", "0.1"], [3.4028234663852886e38, 1e-45, -0.0, 0.1]),
        (LakeKind.DOUBLE, ["1.7976931348623157e+308", "5e-324", "0.1"], [1.7976931348623157e308, 5e-324, 0.1]),
        (LakeKind.DOUBLE, ["Infinity", "-Infinity", None, "1"], [math.inf, -math.inf, None, 1.0]),
        (LakeKind.DATE, ["0001-01-01", "9999-12-31", None], [dt.date.min, dt.date.max, None]),
        (LakeKind.STRING, ["", "é\n'\\", None], ["", "é\n'\\", None]),
        (LakeKind.BINARY, ["\\x", "\\x00ff0a", None, "\\xabcd"], [b"", b"\0\xff\n", None, b"\xab\xcd"]),
        (LakeKind.DOUBLE, [], []),
        (LakeKind.BINARY, [None], [None]),
        (LakeKind.TIMESTAMP, [None], [None]),
    ],
)
def test_exact_values(kind: LakeKind, texts: list[str | None], values: list[object]) -> None:
    got = cast(texts, kind)
    if kind is LakeKind.FLOAT:
        values = pa.array(values, pa.float32()).to_pylist()
    assert repr(got) == repr(values)


def test_nan_is_a_float() -> None:
    assert math.isnan(cast(["NaN"], LakeKind.FLOAT)[0])  # type: ignore[arg-type]


def test_timestamps_to_the_microsecond() -> None:
    texts = ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-02-29 12:00:00.5", None]
    assert cast(list(texts), LakeKind.TIMESTAMP_NTZ) == [
        dt.datetime.min,
        dt.datetime.max,
        dt.datetime(2024, 2, 29, 12, 0, 0, 500000),
        None,
    ]
    zoned = [None if text is None else text + "+00" for text in texts]
    assert cast(zoned, LakeKind.TIMESTAMP)[2] == dt.datetime(2024, 2, 29, 12, 0, 0, 500000, tzinfo=UTC)


def test_odd_offsets() -> None:
    texts: list[str | None] = [
        "2024-01-01 00:00:00+05:30",
        "2024-01-01 00:00:00.25-03",
        "1900-01-01 00:00:00+00:19:32",
        "1900-01-01 00:00:00-04:56:02",
    ]
    assert cast(texts, LakeKind.TIMESTAMP) == [
        dt.datetime(2023, 12, 31, 18, 30, tzinfo=UTC),
        dt.datetime(2024, 1, 1, 3, 0, 0, 250000, tzinfo=UTC),
        dt.datetime(1899, 12, 31, 23, 40, 28, tzinfo=UTC),
        dt.datetime(1900, 1, 1, 4, 56, 2, tzinfo=UTC),
    ]


def test_decimals_are_exact() -> None:
    assert cast(["12345678.90", "-0.01", None], DECIMAL) == [Decimal("12345678.90"), Decimal("-0.01"), None]
    nines = "9" * 38
    assert cast([nines, "-" + nines], LakeType(LakeKind.DECIMAL, 38, 0)) == [Decimal(nines), Decimal("-" + nines)]
    assert cast(["0." + nines], LakeType(LakeKind.DECIMAL, 38, 38)) == [Decimal("0." + nines)]


@pytest.mark.parametrize(
    ("lake_type", "text"),
    [
        (DECIMAL, "NaN"),
        (DECIMAL, "Infinity"),
        (DECIMAL, "-Infinity"),
        *((LakeType(LakeKind.DATE), text) for text in ("infinity", "-infinity", "10000-01-01", "0044-03-15 BC")),
        *(
            (LakeType(LakeKind.TIMESTAMP_NTZ), text)
            for text in (
                "infinity",
                "-infinity",
                "10000-01-01 00:00:00",
                "0044-03-15 00:00:00 BC",
                "294276-12-31 23:59:59.999999",
            )
        ),
        *(
            (LakeType(LakeKind.TIMESTAMP), text)
            for text in (
                "infinity",
                "10000-01-01 00:00:00+00",
                "0044-03-15 00:00:00.1+00 BC",
                "9999-12-31 23:30:00-03",
                "0001-01-01 00:00:00+03",
            )
        ),
    ],
)
def test_unrepresentable(lake_type: LakeType, text: str) -> None:
    fine = "1.00" if lake_type is DECIMAL else "2024-01-01"
    if lake_type.kind in (LakeKind.TIMESTAMP, LakeKind.TIMESTAMP_NTZ):
        fine += " 00:00:00" + ("+00" if lake_type.kind is LakeKind.TIMESTAMP else "")
    with pytest.raises(UnrepresentableError, match=r"s\.t column c: .* in 1 of 3 values") as error:
        cast([fine, text, None], lake_type)
    assert text not in str(error.value).replace("infinity,", "").replace("NaN or Infinity", "")
    assert cast([text, fine, None], lake_type, "null")[1:] == cast([fine, None], lake_type)
    assert cast([text], lake_type, "null") == [None]


MALFORMED = {
    LakeType(LakeKind.BOOLEAN): ["", "true", "T", "1"],
    LakeType(LakeKind.SMALLINT): ["32768", "0x10", "+1", "007", "-0", "", " 1", "1.0", "NaN"],
    BIGINT: ["9223372036854775808", "1e3"],
    LakeType(LakeKind.DOUBLE): ["nan", "inf", "infinity", "1e400", "", "0x1p3", "1,5", " 1"],
    LakeType(LakeKind.FLOAT): ["3.5e+38", "INFINITY"],
    DECIMAL: ["1", "1.0", "1.000", "100000000.00", "1e2", "", "nan", "1.0.0", ".", "--1.00", "1-.00"],
    LakeType(LakeKind.DECIMAL, 38, 38): ["1" * 38, "1." + "1" * 38, "10000." + "0" * 38, "-9." + "9" * 38],
    LakeType(LakeKind.DECIMAL, 5, 0): ["1.", "123456"],
    LakeType(LakeKind.DECIMAL, 38, 0): ["1" + "0" * 39, "9" * 60],  # Arrow alone would give another number
    LakeType(LakeKind.DATE): ["", "2024-02-30", "0000-01-01", "2024-1-1", "01/02/2024", "Infinity", "2024-01-01 AD"],
    LakeType(LakeKind.TIMESTAMP_NTZ): [
        "",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00",
        "2024-01-01 00:00:00+00",
        "2024-01-01 00:00:00.1234567",
        "0000-01-01 00:00:00",
        "epoch",
    ],
    LakeType(LakeKind.TIMESTAMP): [
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:00 UTC",
        "2024-01-01 00:00+00",
        "2024-13-01 00:00:00+00",
    ],
    LakeType(LakeKind.BINARY): ["", "x", "\\x0", "\\x0g", "\\X00", "\\xAB", "abc\\", "00", "\\x\\x"],
}


@pytest.mark.parametrize(("lake_type", "text"), [(kind, text) for kind, texts in MALFORMED.items() for text in texts])
def test_malformed_text_raises_under_both_policies(lake_type: LakeType, text: str) -> None:
    for policy in ("error", "null"):
        with pytest.raises(DecodeError, match=r"s\.t column c: not PostgreSQL's text"):
            cast([None, text], lake_type, policy)


def test_text_must_be_utf8() -> None:
    with pytest.raises(DecodeError):
        cast_text(pa.array([b"\xff"]), LakeType(LakeKind.STRING), name="c", table="s.t")


@given(st.lists(st.none() | st.floats(width=32)))
def test_floats_round_trip(values: list[float | None]) -> None:
    texts = [None if value is None else _float_text(value) for value in values]
    assert repr(cast(texts, LakeKind.DOUBLE)) == repr(values)
    assert repr(cast(texts, LakeKind.FLOAT)) == repr(values)


def _float_text(value: float) -> str:
    return repr(value).replace("inf", "Infinity").replace("nan", "NaN")


@given(st.lists(st.none() | st.binary(max_size=20)))
def test_bytea_round_trips(values: list[bytes | None]) -> None:
    assert cast([None if value is None else "\\x" + value.hex() for value in values], LakeKind.BINARY) == values


@given(st.lists(st.none() | st.decimals(min_value=-99999999, max_value=99999999, places=2)))
def test_decimals_round_trip(values: list[Decimal | None]) -> None:
    assert cast([None if value is None else f"{value:f}" for value in values], DECIMAL) == values


@given(st.lists(st.none() | st.datetimes()))
def test_timestamps_round_trip(values: list[dt.datetime | None]) -> None:
    texts = [None if value is None else value.isoformat(" ") for value in values]
    assert cast(texts, LakeKind.TIMESTAMP_NTZ) == values
    zoned = [None if text is None else text + "+00" for text in texts]
    assert cast(zoned, LakeKind.TIMESTAMP) == [None if value is None else value.replace(tzinfo=UTC) for value in values]


_MOST = Decimal("99999999.99")
FIRST, LAST = (end.replace(tzinfo=UTC) for end in (dt.datetime.min, dt.datetime.max))


@pytest.mark.parametrize(
    ("lake_type", "texts", "values"),
    [
        (
            LakeKind.DATE,
            ["infinity", "-infinity", "10000-01-01", "4713-01-01 BC", "2024-02-29", None],
            [dt.date.max, dt.date.min, dt.date.max, dt.date.min, dt.date(2024, 2, 29), None],
        ),
        (
            LakeKind.TIMESTAMP_NTZ,
            ["infinity", "-infinity", "294276-12-31 23:59:59.999999", "0044-03-15 12:00:00 BC", None],
            [dt.datetime.max, dt.datetime.min, dt.datetime.max, dt.datetime.min, None],
        ),
        (
            LakeKind.TIMESTAMP,
            ["infinity", "-infinity", "0001-01-01 00:00:00+05", "9999-12-31 23:59:59-05"],
            [LAST, FIRST, FIRST, LAST],
        ),
        (DECIMAL, ["Infinity", "-Infinity", "NaN", "1.50", None], [_MOST, -_MOST, None, Decimal("1.50"), None]),
    ],
)
def test_the_nearest_value_that_fits(
    lake_type: LakeType | LakeKind, texts: list[str | None], values: list[object]
) -> None:
    assert cast(texts, lake_type, "clamp") == values


@pytest.mark.parametrize(
    ("typid", "sent", "lake_type", "value"),
    [
        (1082, "7fffffff", LakeType(LakeKind.DATE), dt.date.max),
        (1082, "80000000", LakeType(LakeKind.DATE), dt.date.min),
        (1082, "ffda97cd", LakeType(LakeKind.DATE), dt.date.min),
        (1114, "7fffffffffffffff", LakeType(LakeKind.TIMESTAMP_NTZ), dt.datetime.max),
        (1184, "8000000000000000", LakeType(LakeKind.TIMESTAMP), FIRST),
        (1700, "00000000d0000020", DECIMAL, _MOST),
        (1700, "00000000f0000020", DECIMAL, -_MOST),
        (1700, "00000000c0000000", DECIMAL, None),
    ],
)
def test_the_nearest_value_of_binary_ones(typid: int, sent: str, lake_type: LakeType, value: object) -> None:
    given = pa.array([None, bytes.fromhex(sent)], pa.binary())
    found = cast_binary(given, wire_type(typid), lake_type, name="c", table="s.t", on_unrepresentable="clamp").values
    assert found.to_pylist() == [None, value]
