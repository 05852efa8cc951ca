"""Statements as text, literally."""

from __future__ import annotations

from datetime import date

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.merge_sql import KeyRange, kept_values_query, merge_statement, named_columns, quoted, ranged_key


def _shape(*columns: tuple[str, LakeKind, bool]) -> TableShape:
    made = tuple(LakeColumn(name, i + 1, LakeType(kind), key) for i, (name, kind, key) in enumerate(columns))
    return TableShape(1, QualifiedName("public", "it's"), made)


ITEM = _shape(("id", LakeKind.BIGINT, True), ("doc", LakeKind.STRING, False))


def test_merge() -> None:
    assert merge_statement("/lake/t", NetColumns(ITEM), KeyRange(-3, 12)) == (
        "MERGE INTO delta.`/lake/t` AS t\n"
        "USING net_change AS s\n"
        "ON t.`id` = s.v0 AND t.`id` BETWEEN -3 AND 12\n"
        "WHEN MATCHED AND s.op = 0 THEN DELETE\n"
        "WHEN MATCHED THEN UPDATE SET t.`doc` = s.v1\n"
        "WHEN NOT MATCHED AND s.op = 1 THEN INSERT (`id`, `doc`) VALUES (s.v0, s.v1)"
    )


def test_kept_values_stay_and_a_missing_row_is_an_error() -> None:
    statement = merge_statement("/lake/t", NetColumns(ITEM, (1,)), None)
    assert "UPDATE SET t.`doc` = CASE WHEN s.u1 THEN t.`doc` ELSE s.v1 END" in statement
    assert "CASE WHEN s.u1 THEN raise_error('public.\"it\\'s\": a change needs a row" in statement


def test_a_table_that_is_all_key_has_no_update() -> None:
    shape = _shape(("a", LakeKind.DATE, True), ("b`", LakeKind.STRING, True))
    statement = merge_statement("/lake/t", NetColumns(shape), KeyRange(date(2024, 1, 2), date(2024, 5, 6)))
    assert "UPDATE" not in statement
    assert "ON t.`a` = s.v0 AND t.`b``` = s.v1 AND t.`a` BETWEEN DATE'2024-01-02' AND DATE'2024-05-06'\n" in statement


def test_moved_rows_are_joined_by_the_key_they_left() -> None:
    assert kept_values_query("/lake/t", NetColumns(ITEM, (1,), (0,))) == (
        "SELECT s.op, s.v0,"
        " CASE WHEN s.u1 AND ((s.f0 IS NOT NULL) AND t.`id` IS NOT NULL) THEN t.`doc` ELSE s.v1 END AS v1,"
        " (s.u1 AND NOT ((s.f0 IS NOT NULL) AND t.`id` IS NOT NULL)) AS u1\n"
        "FROM moved_rows AS s\n"
        "LEFT JOIN delta.`/lake/t` AS t ON (s.f0 IS NOT NULL) AND t.`id` = coalesce(s.f0, s.v0)"
    )


def test_quoting() -> None:
    assert quoted("a`b c") == "`a``b c`"
    assert named_columns(ITEM.columns) == ("CAST(v0 AS bigint) AS `id`", "CAST(v1 AS string) AS `doc`")


def test_only_types_with_literals_are_ranged() -> None:
    assert ranged_key(ITEM) == 0
    assert ranged_key(_shape(("id", LakeKind.STRING, True))) is None
