"""A table for whose columns the configuration chooses types and policies; the server's own casts are the oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions, OnUnrepresentable
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THING = QualifiedName("public", "thing")
MADE = (
    "CREATE TYPE mood AS ENUM ('sad', 'so so', 'NULL')",
    "CREATE DOMAIN count AS int",
    """CREATE TABLE thing (id uuid PRIMARY KEY, amount numeric, price numeric(50,4), tag uuid, words text[],
      "a-b" int[], ratios float8[], days date[], stamps timestamptz[], sizes numeric(10,2)[], free numeric[],
      moods mood[], counts count[], tags uuid[], flags bool[], until date, seen timestamptz,
      doc jsonb, raw json)""",
    "ALTER TABLE thing ALTER doc SET STORAGE EXTERNAL",
    "ALTER TABLE thing ALTER words SET STORAGE EXTERNAL",
)
VALUES = """
  ('00000000-0000-0000-0000-{0:012x}'::uuid, {0} + 0.50, {0}.2500, '{0:08x}-0000-4000-8000-0000000000ff',
   ARRAY['a', NULL, 'NULL', 'b,c', E'd"e\\\\f', '', '{{}}', 'Grüße 🐘', repeat('x', {1})],
   ARRAY[{0}, NULL, -3], ARRAY['NaN', 0, '-0', '1e300', NULL]::float8[], ARRAY['2024-02-29', NULL]::date[],
   ARRAY['2024-01-01 12:00+00', '2024-01-01 12:00:00.000001+00']::timestamptz[], ARRAY[{0}, 0.5]::numeric(10,2)[],
   ARRAY[1.50, 'NaN']::numeric[], ARRAY['sad', 'so so', 'NULL', NULL]::mood[], ARRAY[{0}]::count[],
   ARRAY['{0:08x}-0000-4000-8000-0000000000ff']::uuid[], ARRAY[true, NULL, false], '2024-01-01', now(),
   jsonb_build_object('n', {0} + 0.10, 'b', ARRAY[true, NULL], 'Grüße', repeat('d', {1})),
   '{{"z": [1, 2.50],  "a": null}}')"""
CHANGES = (
    f"INSERT INTO thing VALUES {VALUES.format(50, 9000)}, {VALUES.format(51, 1)}",
    "INSERT INTO thing (id) VALUES ('00000000-0000-0000-0000-0000000000aa')",
    # the words, out of line, are not sent
    """UPDATE thing SET amount = amount * 3, "a-b" = '{}', ratios = '{-0}'
      WHERE tag > '00000020-0000-0000-0000-000000000000'""",
    "UPDATE thing SET id = '00000000-0000-0000-0000-0000000000ff' WHERE id = '00000000-0000-0000-0000-000000000003'",
    """UPDATE thing SET doc = '[{"a": 12345678901234567890123456789012345678, "b": "1e5"}, -0.5, "", {}]', raw = 'null'
      WHERE id = '00000000-0000-0000-0000-000000000002'""",
    "UPDATE thing SET words = NULL, days = '{NULL}' WHERE id = '00000000-0000-0000-0000-000000000004'",
    "DELETE FROM thing WHERE id = '00000000-0000-0000-0000-000000000005'",
)
# of a policy: what has no counterpart, as a change
BEYOND = (
    "UPDATE thing SET amount = 1e-20, until = 'infinity' WHERE id = '00000000-0000-0000-0000-000000000006'",
    "UPDATE thing SET amount = 'NaN', until = '-infinity' WHERE id = '00000000-0000-0000-0000-000000000007'",
    "UPDATE thing SET amount = 1e30, price = 1.005 WHERE id = '00000000-0000-0000-0000-000000000008'",
    "UPDATE thing SET price = 1e40, days = '{infinity,2024-01-01}' WHERE id = '00000000-0000-0000-0000-000000000009'",
    "UPDATE thing SET doc = '[1e100]', raw = '{\"a\": 1e2}' WHERE id = '00000000-0000-0000-0000-00000000000b'",
    "UPDATE thing SET raw = '{\"a\": 1, \"a\": 2}' WHERE id = '00000000-0000-0000-0000-00000000000c'",
    """UPDATE thing SET words = '{{a,b},{c,d}}', "a-b" = '[0:1]={5,6}'
      WHERE id = '00000000-0000-0000-0000-00000000000a'""",
)
ARRAYS = ("words", "a-b", "ratios", "days", "stamps", "sizes", "free", "moods", "counts", "tags", "flags")
TYPES = {
    "id": "binary",
    "amount": "decimal(38,10)",
    "price": "decimal(20,2)",
    "tag": "binary",
    "doc": "variant",
    "raw": "variant",
}
POLICIES: tuple[tuple[str, OnUnrepresentable], ...] = (
    ("amount", "null"), ("until", "clamp"), ("price", "clamp"), ("days", "clamp"), ("words", "null"), ("a-b", "clamp"),
    ("doc", "null"), ("raw", "clamp"),
)  # fmt: skip
# as the server casts them: what fits is itself, and the rest is what its column's policy says
EXPECTED = """
SELECT uuid_send(id), CASE WHEN abs(amount) < 1e28 AND round(amount, 10) = amount THEN amount::numeric(38,10) END,
  CASE WHEN price >= 1e18 THEN 999999999999999999.99 ELSE price::numeric(20,2) END, uuid_send(tag),
  CASE WHEN array_ndims(words) = 1 OR words = '{}' THEN words END,
  CASE WHEN array_lower("a-b", 1) = 1 OR "a-b" = '{}' THEN "a-b" END, ratios::text[],
  CASE WHEN 'infinity' = ANY (days) THEN array_replace(days, 'infinity', '9999-12-31') ELSE days END, stamps, sizes,
  free::text[], moods::text[], counts::int[], tags::text[], flags,
  CASE WHEN until IS NOT NULL THEN greatest(least(until, '9999-12-31'), '0001-01-01') END, seen,
  CASE WHEN doc <> '[1e100]' THEN doc::text END,
  CASE WHEN raw::text NOT IN ('{"a": 1e2}', '{"a": 1, "a": 2}') THEN raw::text END
FROM thing"""


def types_of(types: dict[str, str]) -> ChosenTypes:
    return ChosenTypes.of({name: ChosenType.parse(text) for name, text in types.items()})


ALL = ColumnOptions(types_of({**TYPES, **dict.fromkeys(ARRAYS, "array")}), POLICIES)


def configured(
    pipeline: Pipeline, options: ColumnOptions, name: QualifiedName = THING, mode: Mode = "mirror"
) -> Pipeline:
    return replace(pipeline, tables=(Table(name, mode, options=options),))


def start(spark: SparkSession, database: Database, lake: Path, options: ColumnOptions = ALL, **source: Any) -> Followed:
    rows = ", ".join(VALUES.format(number, 9000 if number % 2 else 1) for number in range(1, 41))
    database.execute(*MADE, f"INSERT INTO thing VALUES {rows}")
    pipeline = configured(pipeline_of(database, lake, "public.thing", **source), options)
    return Followed(spark, database, pipeline, (THING,))


def number(digits: str) -> str:
    return f"decimal {Decimal(digits).normalize():f}"


def assert_equal(followed: Followed) -> None:
    from pyspark.sql import functions as fn

    rows = followed.spark.read.format("delta").load(followed.pipeline.lake.table(THING))
    table = rows.withColumns({name: fn.to_json(name) for name, kind in rows.dtypes if kind == "variant"}).toArrow()
    lake, names = zip(*(column.to_pylist() for column in table.columns), strict=True), table.column_names
    ratios, documents = names.index("ratios"), [names.index("doc"), names.index("raw")]
    with followed.database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; SET extra_float_digits = 3")
        source: list[list[Any]] = [list(row) for row in connection.execute(EXPECTED).fetchall()]
    lake_rows: list[list[Any]] = [list(row) for row in lake]
    for row in (*source, *lake_rows):  # NaN is no NaN to Python
        if row[ratios] is not None:
            row[ratios] = [None if each is None else str(float(each)) for each in row[ratios]]
        for place in documents:
            if row[place] is not None:
                row[place] = json.dumps(json.loads(row[place], parse_float=number), sort_keys=True)
    assert sorted(lake_rows, key=repr) == sorted(source, key=repr)
