"""Values in binary as a server has sent them, and the comparison with those that are read from text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.decode.binary.cast import cast_binary
from spark_jobs.decode.values import OnUnrepresentable, cast_text
from spark_jobs.errors import DecodeError, UnrepresentableError
from spark_jobs.schema.lake_types import LakeType
from spark_jobs.schema.wire_type import WireType

# what PostgreSQL 18 sends
RECORDED = (
    (16, "01", "t"),
    (21, "8000", "-32768"),
    (23, "7fffffff", "2147483647"),
    (20, "8000000000000000", "-9223372036854775808"),
    (26, "ffffffff", "4294967295"),
    (701, "0000000000000001", "5e-324"),
    (701, "4340000000000000", "9.007199254740992e+15"),
    (700, "7f7fffff", "3.4028235e+38"),
    (1700, "0003000140000004000104d2162e", "-11234.5678"),
    (1700, "00030001400000040001" + "0929" + "1a85", "-12345.6789"),
    (1700, "00000000c0000000", "NaN"),
    (1700, "0001000000000000" + "2710", None),
    (1700, "0001000000000000" + "0000", None),
    (1700, "0001000000001234" + "0001", "1." + "0" * 4660),
    (1700, "0001000000004000" + "0001", None),
    (1082, "7fffffff", "infinity"),
    (1082, "ffda97cd", "4713-01-01 BC"),
    (1114, "fffffffffff85ee1", "1999-12-31 23:59:59.500001"),
    (1184, "0000000000000001", "2000-01-01 00:00:00.000001+00"),
    (1083, "000000141dd76000", "24:00:00"),
    (1266, "0000000000000000ffffb57c", "00:00:00+05:17:56"),
    (1186, "f" * 32, "-1 mons -1 days -00:00:00.000001"),
    (1186, "000000000000000000000000ffffffff", "-1 mons"),
    (869, "0580001020010db8000000000000000000000001", None),
    (869, "0380001020010db8000000000000000000000001", "2001:db8::1"),
    (650, "020801040a000000", "10.0.0.0/8"),
    (2950, "00112233445566778899aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff"),
    (3802, "017b7d", "{}"),
    (1562, "00000003a0", "101"),
    (600, "3ff8000000000000c000000000000000", "(1.5,-2)"),
    (1007, "0000000100000000000000170000000000000001", "{}"),
    (1007, "00000001000000010000001700000002000000000000000400000007ffffffff", "[0:1]={7,NULL}"),
    (1009, "0000000100000000000000190000000100000001000000046e756c6c", '{"null"}'),
    (3904, "01", "empty"),
    (3904, "0200000004000000010000000400000005", "[1,5)"),
    (4451, "000000010000001102" + "0000000400000001" + "0000000400000005", "{[1,5)}"),
    (790, "ffffffffffffff9c", "-$1.00"),
)


def assert_same(column: pa.Array, texts: pa.Array, known: WireType, to: LakeType) -> None:
    policies: tuple[OnUnrepresentable, ...] = ("null", "error")
    for policy in policies:
        try:
            expected = cast_text(texts, to, name="c", table="s.t", on_unrepresentable=policy)
        except (DecodeError, UnrepresentableError) as error:
            with pytest.raises(type(error)):
                cast_binary(column, known, to, name="c", table="s.t", on_unrepresentable=policy)
            continue
        got = cast_binary(column, known, to, name="c", table="s.t", on_unrepresentable=policy)
        got.values.validate(full=True)
        assert got.values.cast(pa.string()).equals(expected.values.cast(pa.string()))
        assert got.misfits == expected.misfits
