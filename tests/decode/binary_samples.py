"""Awkward values of every type that pgoutput sends in binary, as SQL: each row of a query is one value."""

# ruff: noqa: E501, S104 - long SQL reads best unbroken; 0.0.0.0 is a value here
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """``type_name``: the column's type; ``query`` yields values that cast to it; ``since``: the first major version."""

    type_name: str
    query: str
    since: int = 14


PREPARATION = (
    "CREATE EXTENSION citext",
    "CREATE EXTENSION hstore",
    "CREATE EXTENSION ltree",
    "CREATE TYPE mood AS ENUM ('sad', 'so so', 'he said \"hi\"', 'null', '')",
    "CREATE DOMAIN positive AS integer CHECK (value > 0)",
    "CREATE DOMAIN amounts AS numeric(10,2)[]",
    "CREATE TYPE pair AS (a integer, b text, c numeric[], d mood)",
    "CREATE TYPE nested AS (p pair, q pair[], r positive, s timestamptz)",
    "CREATE TYPE moods AS RANGE (subtype = mood)",
    "CREATE TYPE texts AS RANGE (subtype = text)",
)


def values(*literals: str) -> str:
    """Literals as text, quoted here."""
    quoted = ", ".join("'" + literal.replace("'", "''") + "'" for literal in literals)
    return f"SELECT unnest(ARRAY[{quoted}]::text[])"


def both(*queries: str) -> str:
    return " UNION ALL ".join(f"(SELECT v::text FROM ({query}) AS q(v))" for query in queries)


_R = "(random() - 0.5)"
_STRINGS = (
    "", " ", "  two  ", "null", "NULL", "Null", "nullx", '"', "\\", "\\\\", '"\\"', "'", "''", ",", ";", "{", "}", "{}",
    "(", ")", "[", "]", "a b", "a\tb", "a\nb", "a\rb", "a\vb", "a\fb", "ünï", "日本語", "\u00a0", "\u2003", "😀", "%", "=>",
    "a=>b", ":", "/", "x" * 3000,
)  # fmt: skip
_TEXTS = values(*_STRINGS)
_RANDOM_TEXT = (
    "SELECT (SELECT string_agg(substr(E' ,;\"\\\\''{}()[]aN=>\\t\\nü', 1 + floor(random() * 21)::int, 1), '') FROM"
    " generate_series(1, 1 + (n % 9)) WHERE n = n) FROM generate_series(1, 300) AS n"
)
_NUMERICS = (
    "0", "0.0", "0.000", "-0", "1", "-1", "10", "100", "1000", "10000", "100000000", "9999", "99999999", "10001",
    "0.1", "0.01", "0.001", "0.0001", "0.00001", "0.00009999", "0.000099990", "1.0", "1.50", "1.5000", "1.50000",
    "12345.6789", "123456789012345678901234567890.123456789012345678901234567890", "-0.00000000000000000001",
    "1e20", "1e100", "1e-100", "1e1000", "9" * 200, "0." + "0" * 150 + "1", "-" + "9" * 40 + "." + "9" * 40,
    "NaN", "Infinity", "-Infinity", "1e131071", "1e-16383",
)  # fmt: skip
_RANDOM_NUMERIC = (
    f"SELECT round((({_R}) * (10::numeric ^ (floor(random() * 30) - 10)::int))::numeric, floor(random() * 20)::int)"
    " FROM generate_series(1, 500)"
)
_FINITE = values(*[text for text in _NUMERICS if text[-1:].isdigit() and len(text) < 40 and "e" not in text])
_FLOATS = (
    "0", "-0", "1", "-1", "0.1", "0.2", "0.3", "NaN", "Infinity", "-Infinity", "123456", "1234567", "999999", "1000000",
    "0.0001", "0.00001", "0.000123", "1e5", "1e6", "1e7", "1e14", "1e15", "1e16", "123456789", "16777216", "16777217",
    "1e-30", "1e30", "3.1415926535897932",
)  # fmt: skip
_FLOAT8S = (
    *_FLOATS, "5e-324", "1e-323", "2.2250738585072014e-308", "2.2250738585072009e-308", "1.7976931348623157e308",
    "9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994", "18014398509481984",
    "5.684341886080802e-14", "9.5367431640625e-07", "4503599627370496.5", "4503599627370497.5", "1e23", "2e23", "8.5e22",
    "9.5e21", "123456789012345", "1234567890123456", "12345678901234567", "999999999999999", "9999999999999998",
    "2.98023223876953125e-8", "5e22", "1e22", "1e21", "4.35", "0.000001", "1.5e300", "7.038531e-26",
)  # fmt: skip
_FLOAT4S = (
    *_FLOATS,
    "1e-45",
    "1.1754944e-38",
    "3.4028235e38",
    "1.4e-45",
    "8388608",
    "33554432",
    "7.038531e-26",
    "2.5e-8",
)
# bit patterns, so that every exponent and every power of two with its neighbours comes
_POWERS = "SELECT (2.0::float8 ^ n) * (1 + k * 2.220446049250313e-16) FROM generate_series(-1020, 1022) n, generate_series(0, 1) k"
_INTEGRAL = (
    "SELECT ((random() * 9007199254740992)::float8 * 2.0 ^ n) FROM generate_series(0, 70) n, generate_series(1, 15)"
)
_TENS = "SELECT (m * 10.0::numeric ^ n)::float8 FROM generate_series(-300, 300, 3) n, generate_series(1, 9, 2) m"
_HALVES = (
    "SELECT (9007199254740992 + 2 * k)::float8 * 2.0 ^ n FROM generate_series(1, 2001, 5) k, generate_series(0, 8, 2) n"
)
_DATES = (
    "2000-01-01", "1999-12-31", "1970-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "0001-12-31 BC",
    "0005-02-29 BC", "0004-02-28 BC", "4713-01-01 BC", "4714-11-24 BC", "infinity", "-infinity", "2000-02-29",
    "1900-03-01", "2100-02-28", "0099-07-08", "0100-03-01", "1582-10-15",
)  # fmt: skip
_INSIDE = [text for text in _DATES if "BC" not in text and "inf" not in text and len(text) == 10]
_TIMES = ("00:00:00", "23:59:59.999999", "24:00:00", "allballs", "12:00:00.5", "12:00:00.000001", "12:34:56.100000")
_STAMPS = tuple(
    f"{date[:10]} {time}{date[10:]}" if "inf" not in date and len(date.split('-')[0]) == 4 else date
    for date in _DATES
    for time in ("00:00:00", "23:59:59.999999", "12:00:01.5")
)  # fmt: skip
_RANDOM_STAMP = "SELECT ('0001-01-01'::timestamp + random() * interval '3652058 days') FROM generate_series(1, 400)"
_INTERVALS = (
    "0", "1 day", "-1 day", "2 days", "1 mon", "-1 mon", "11 mons", "12 mons", "13 mons", "-13 mons", "1 year",
    "-1 year", "1 year -1 mon", "1 mon -1 day", "-1 mon +1 day", "-1 day +00:00:01", "1 day -00:00:01", "-1 year 2 days",
    "-1 days +02:03:04", "00:00:00.000001", "-00:00:00.000001", "00:00:01.5", "1 mon -1 day 01:02:03.4", "178000000 years",
    "-178000000 years", "2147483647 days", "-2147483648 days",
    "100:00:00", "-1 year -2 mons +3 days -04:05:06.789", "1 year 2 mons -3 days", "-3 days 04:05:06",
)  # fmt: skip
_INETS = (
    "0.0.0.0", "255.255.255.255", "10.0.0.1/8", "192.168.1.5/24", "10.0.0.0/32", "::", "::1", "::2", "::1.2.3.4",
    "::ffff:1.2.3.4", "::ffff:1.2.3.4/96", "::ffff:0:1", "1::", "1::8", "1:0:0:2::", "1:0:2:0:3:0:4:0", "2001:db8::/32",
    "fe80::1/64", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8/127", "0:0:1::", "0:1::", "::1:0:0", "::1:0:0:0", "1:0:0:1:0:0:0:1",
    "::/0", "0.0.0.0/0", "::fffe:1.2.3.4", "::0.0.0.1", "::0.1.0.0", "0:0:0:0:0:1::", "::abcd:0:0:0", "a::b:0:0:c:0",
)  # fmt: skip
_CIDRS = (
    "0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "192.168.1.0/24", "::/0", "::1/128", "2001:db8::/32", "::ffff:0:0/96",
    "::ffff:1.2.3.0/120", "::/128", "10.0.0.128/25",
)  # fmt: skip
_POINTS = ("(0,0)", "(1.5,-2.25)", "(1e300,-1e-300)", "(NaN,Infinity)", "(-0,0.1)", "(123456789.123,5e-324)")
_JSON = ('null', '{}', '[]', '"a"', '1', '{"a": [1, 2.50, null, true], "ü": "\\u00e9\\n"}', '[[["x"]]]', '1e3')  # fmt: skip

SAMPLES = (
    Sample("bool", "SELECT n % 2 = 0 FROM generate_series(1, 9) n"),
    Sample("int2", both(values("-32768", "0", "32767", "-1"), f"SELECT ({_R} * 65535)::int FROM generate_series(1, 99)")),
    Sample("int4", values("-2147483648", "2147483647", "0", "-1", "10", "-10")),
    Sample("int8", values("-9223372036854775808", "9223372036854775807", "0", "-1")),
    Sample("oid", values("0", "1", "4294967295", "2147483648")),
    Sample("xid", values("0", "4294967295")),
    Sample("cid", values("0", "4294967295")),
    Sample("xid8", values("0", "18446744073709551615", "9223372036854775808")),
    Sample("oid8", values("0", "18446744073709551615", "9223372036854775808"), since=19),
    Sample("oid8[]", values("{1,NULL}"), since=19),
    Sample("tid", values("(0,0)", "(4294967295,65535)", "(1,2)")),
    Sample("pg_lsn", values("0/0", "FFFFFFFF/FFFFFFFF", "16/B374D848", "0/A")),
    Sample("pg_lsn[]", values("{0/0,NULL,16/B374D848}")),
    Sample("pg_snapshot", values("1:1:", "10:20:10,14,15", "9223372036854775806:9223372036854775807:")),
    Sample("txid_snapshot", values("10:20:10,14,15")),
    Sample("money", values("0", "0.01", "-0.01", "-1", "1234567.89", "-92233720368547758.08", "92233720368547758.07", "999")),
    Sample("float8", both(values(*_FLOAT8S), _POWERS, _INTEGRAL, _TENS, _HALVES,
           f"SELECT {_R} * 10::float8 ^ (random() * 600 - 300) FROM generate_series(1, 2000)")),
    Sample("float4", both(values(*_FLOAT4S),
           "SELECT (2.0::float8 ^ n) * (1 + k * 1.1920928955078125e-07) FROM generate_series(-125, 126) n, generate_series(0, 3) k",
           "SELECT (16777216 + 2 * k)::float8 * 2.0 ^ n FROM generate_series(1, 999, 3) k, generate_series(0, 4) n",
           f"SELECT {_R} * 10::float8 ^ (random() * 70 - 35) FROM generate_series(1, 2000)")),
    Sample("float8[]", f"SELECT ARRAY[v, -v, NULL]::float8[] FROM (SELECT unnest({values(*_FLOAT8S).removeprefix('SELECT unnest(')}::float8 AS v) s"),
    Sample("float4[]", both(
        f"SELECT ARRAY[v, -v, NULL]::float4[] FROM (SELECT unnest({values(*_FLOAT4S).removeprefix('SELECT unnest(')}::float4 AS v) s",
        f"SELECT array_agg(v::float4) FROM ({_POWERS.replace('-1020', '-125').replace('1022', '126')}) s(v)",
        "SELECT array_agg(((16777216 + 2 * k)::float8 * 2.0 ^ n)::float4) FROM generate_series(1, 999, 3) k, generate_series(0, 40) n",
    )),
    Sample("numeric", both(values(*_NUMERICS), f"SELECT v::text FROM ({_RANDOM_NUMERIC}) s(v)")),
    Sample("numeric(10,2)", values("0", "1", "-1", "0.01", "-0.01", "99999999.99", "-99999999.99", "0.5", "100", "NaN", "10000")),
    Sample("numeric(15,15)", values("0", "0.000000000000001", "-0.999999999999999", "0.0001")),
    Sample("numeric(18,9)", values("0", "999999999.999999999", "-0.000000001", "1")),
    Sample("numeric(20,0)", values("0", "99999999999999999999", "-1", "10000000000000000", "100000000000000000", "1000000000000000000")),
    Sample("numeric(38,0)", values("0", "9" * 38, "-" + "9" * 38, "1" + "0" * 30)),
    Sample("numeric(38,38)", values("0", "0." + "9" * 38, "-0." + "0" * 37 + "1")),
    Sample("numeric(38,10)", both(_FINITE.replace("99999999", "9999"), values("1e27", "-1e-10"))),
    Sample("numeric(12,4)", f"SELECT {_R} * 1e8 FROM generate_series(1, 500)"),
    Sample("numeric(50,5)", values("0", "-1.5", "9" * 45)),
    Sample("numeric(4,-3)", values("0", "1234567", "-1000", "499"), since=15),
    Sample("numeric(3,6)", values("0", "0.000123", "-0.000999"), since=15),
    Sample("numeric[]", f"SELECT ARRAY[v, NULL, -v] FROM ({_RANDOM_NUMERIC}) s(v)"),
    Sample("text", both(_TEXTS, _RANDOM_TEXT)),
    Sample("varchar(3000)", _TEXTS),
    Sample("char(40)", values("", "a", "ü  ", '"')),
    Sample("name", values("", "a b", "日本")),
    Sample('"char"', values("", "a", '"', "\\", " ")),
    Sample("citext", _TEXTS),
    Sample("mood", values("sad", "so so", 'he said "hi"', "null", "")),
    Sample("positive", values("1", "2147483647")),
    Sample("json", values(*_JSON, ' { "a" : 1 } ')),
    Sample("jsonb", values(*_JSON, ' { "a" : 1 } ')),
    Sample("jsonpath", values("$", "$.a[*] ? (@ > 1)", 'strict $."b c"')),
    Sample("bytea", both(values("", "\\x00", "\\x5c5c00ff27"), "SELECT decode(md5(n::text), 'hex') FROM generate_series(1, 50) n")),
    Sample("xml", values("<a/>", '<?xml version="1.0" encoding="LATIN1"?><a>ü</a>', '<?xml version="1.1" standalone="yes"?><a/>', "x")),
    Sample("uuid", both(values("00000000-0000-0000-0000-000000000000"), "SELECT md5(n::text)::uuid FROM generate_series(1, 99) n")),
    Sample("date", both(values(*_DATES, "5874897-12-31"), "SELECT '0001-01-01'::date + n * 997 FROM generate_series(0, 3662) n")),
    Sample("date[]", both(f"SELECT array_agg(v::date) FROM ({values(*_DATES)}) s(v)",
                          "SELECT array_agg('4714-11-24 BC'::date + n * 9973) FROM generate_series(0, 9999) n")),
    Sample("timestamp", both(values(*_STAMPS, "294276-12-31 23:59:59.999999"), _RANDOM_STAMP)),
    Sample("timestamptz", both(values(*_STAMPS, "294276-12-31 23:59:59.999999"), _RANDOM_STAMP)),
    Sample("timestamp[]", f"SELECT array_agg(v::timestamp) FROM ({values(*_STAMPS)}) s(v)"),
    Sample("timestamptz[]", f"SELECT array_agg(v::timestamptz) FROM ({values(*_STAMPS)}) s(v)"),
    Sample("time", both(values(*_TIMES), "SELECT '00:00'::time + random() * interval '1 day' FROM generate_series(1, 99)")),
    Sample("time(0)", values("00:00:00", "23:59:59", "24:00:00")),
    Sample("timetz", values(*(f"{time}{zone}" for time in _TIMES[:1] + _TIMES[4:]
                              for zone in ("+00", "-08", "+05:30", "-15:59:59", "+15:59", "+00:00:01", "-00:30")))),
    Sample("interval", both(values(*_INTERVALS), f"SELECT make_interval(0, ({_R} * 40)::int, 0, ({_R} * 9)::int, 0, 0, {_R} * 9e4)"
                            " FROM generate_series(1, 500)")),
    Sample("interval", values("2562047788:00:54.775807", "-2562047788:00:54.775807"), since=15),
    Sample("interval[]", f"SELECT array_agg(v::interval) FROM ({values('infinity', '-infinity')}) s(v)", since=17),
    Sample("inet", both(values(*_INETS), "SELECT (regexp_replace(md5(n::text), '(....)(?=.)', '\\1:', 'g'))::inet FROM generate_series(1, 50) n",
        "SELECT (regexp_replace(translate(substr(md5(n::text), 1, 8), '123456789abcde', '00000000000000') || repeat('0', 8)"
        " || translate(substr(md5(n::text), 1, 16), '12345689abcd', '000000000000'), '(....)(?=.)', '\\1:', 'g'))::inet FROM generate_series(1, 500) n")),
    Sample("cidr", values(*_CIDRS)),
    Sample("macaddr", values("08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00")),
    Sample("macaddr8", values("08:00:2b:01:02:03:04:05", "ff:ff:ff:ff:ff:ff:ff:ff")),
    Sample("bit(5)", values("00000", "10101", "11111")),
    Sample("bit(8)", values("00000000", "10000001")),
    Sample("varbit", values("", "1", "0", "01" * 40, "111111110")),
    Sample("point", values(*_POINTS)),
    Sample("lseg", values("[(0,0),(1,1.5)]", "[(1e-7,2),(-0,4)]")),
    Sample("box", values("(0,0),(1,1)", "(5,6),(-1e20,0.1)")),
    Sample("path", values("[(0,0),(1,1)]", "((0,0),(1,1),(2,0.5))", "[(1,2)]")),
    Sample("polygon", values("((0,0),(1,1),(2,0.5))", "((1,2))")),
    Sample("circle", values("<(0,0),1>", "<(1.5,-2),0>")),
    Sample("line", values("{1,-1,0}", "{0,1,-2.5}")),
    Sample("box[]", values("{(0,0),(1,1);(5,6),(2,3)}", "{}", "{NULL;(1,1),(0,0)}")),
    Sample("point[]", values('{"(0,0)","(1,1)"}')),
    Sample("tsvector", values("", "a", "a b:3 c:1A,2B,9C,16383D", "'it''s' 'back\\\\slash' ' ' 'ü':5", "'a:b' '1'")),
    Sample("tsquery", values("", "a", "a & b", "a | b & c", "(a | b) & c", "!a", "!(a & b)", "!!a", "a <-> b", "a <3> b",
        "(a <-> b) <-> c", "a <-> (b <-> c)", "a <-> (b & c)", "(a | b) <2> !c", "!(a <-> b)", "a:*", "a:AB", "a:*ABCD & 'x''y':D",
        "'back\\\\slash'", "a & b & c & d | !e & (f | g)", "a <-> !b", "!(a | !b) & c <0> d")),
    Sample("hstore", values("", "a=>1", 'a=>NULL, b=>"NULL"', '"a b"=>"c\\"d", "\\\\"=>""', '"ü"=>"x,y=>z"', '""=>"e"')),
    Sample("ltree", values("", "a", "a.b_c.D1")),
    Sample("lquery", values("*", "a.*{1,2}.b|c")),
    Sample("int4[]", values("{}", "{1}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:1]={1,2}", "[-2:-1][3:4]={{1,2},{3,NULL}}",
        "{{{{{{1}}}}}}", "{{{1,2},{3,4}},{{5,6},{7,8}}}")),
    Sample("text[]", both(f"SELECT array_agg(v) FROM ({_TEXTS}) s(v)", f"SELECT ARRAY[v, NULL] FROM ({_TEXTS}) s(v)",
        f"SELECT ARRAY[v] FROM ({_RANDOM_TEXT}) s(v)", f"SELECT ARRAY[[v, 'a'], [NULL, v]] FROM ({_TEXTS}) s(v)")),
    Sample("uuid[]", "SELECT ARRAY[md5(n::text)::uuid, NULL] FROM generate_series(1, 9) n"),
    Sample("bool[]", values("{t,f,NULL}")),
    Sample("bytea[]", values("{NULL}", '{"\\\\x00ff",""}')),
    Sample("jsonb[]", "SELECT ARRAY['{\"a\": \"b\\\\c\"}'::jsonb, 'null', NULL, '\"null\"']"),
    Sample("mood[]", values('{sad,"so so","he said \\"hi\\"","null",NULL,""}')),
    Sample("amounts", values("{}", "{1.00,NULL,99.5}")),
    Sample("int2vector", values("", "1", "1 -2 3")),
    Sample("oidvector", values("1 4294967295")),
    Sample("int4range", values("empty", "(,)", "[1,5)", "(,5)", "[1,)", "[-3,-2]")),
    Sample("int8range", values("[1,9223372036854775807)", "empty")),
    Sample("numrange", values("empty", "[1.0,2.50]", "(1.0,2.50)", "(,1e3]", "[-Infinity,NaN]")),
    Sample("tsrange", values("[2020-01-01 00:00:00,infinity)", "(-infinity,2020-01-01 00:00:00.5]", "empty",
                             '["0044-03-15 BC","2020-01-01 12:00"]')),
    Sample("tstzrange", values("[2020-01-01 00:00:00+00,infinity]", '("2020-01-01 01:02:03.4+05",)')),
    Sample("daterange", values("[2020-01-01,2020-02-01)", "(,2020-01-01)", "[-infinity,infinity]")),
    Sample("texts", both(*(f"SELECT texts(least(v, 'k'), greatest(v, 'k'), '{b}') FROM ({_TEXTS}) s(v)" for b in ("[)", "(]")),
                         f"SELECT texts(NULL, v) FROM ({_RANDOM_TEXT}) s(v)")),
    Sample("moods", values("[sad,null]", '["so so","he said ""hi""")', '[sad,""]')),
    Sample("int4range[]", values('{"[1,5)",empty,NULL}')),
    Sample("int4multirange", values("{}", "{[1,5)}", "{(,1),[3,5),[7,)}")),
    Sample("tsmultirange", values('{["2020-01-01 00:00","2020-01-02 00:00"],["2021-01-01 00:00",)}')),
    Sample("nummultirange", values("{[1.0,2.50],(3,4)}")),
    Sample("pair", both(values('(1,a,"{1.50,NULL}",sad)', "(,,,)", '(-1,"","{}","so so")'),
                        f"SELECT ROW(1, v, ARRAY[1.10], 'null')::pair FROM ({_TEXTS}) s(v)",
                        f"SELECT ROW(1, v, NULL, NULL)::pair FROM ({_RANDOM_TEXT}) s(v)")),
    Sample("pair[]", f"SELECT ARRAY[ROW(1, v, ARRAY[1.10], 'null')::pair, NULL] FROM ({_TEXTS}) s(v)"),
    Sample("nested", f"SELECT ROW(ROW(1, v, ARRAY[1.10], ''), ARRAY[ROW(2, v, NULL, 'sad')]::pair[], 7, '2020-01-01')::nested FROM ({_TEXTS}) s(v)"),
)  # fmt: skip
