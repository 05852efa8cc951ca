"""How a table is written, by counts and sizes alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pyarrow as pa
import pytest

from spark_jobs.configuration import MergeEngine, SparkOptions
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.table_mode import Mode
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeType
from spark_jobs.schema.moment import Moment
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.write_choice import Engine, TableFacts, WriteWay, compaction_writer, snapshot_writer, write_way

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LIMITS = WriteLimits(
    rewritten_rows=100,
    rewritten_share=0.25,
    streamed_share=0.1,
    broadcast_keys=500,
    small_bytes=1000,
    wide_row_bytes=50,
    many_files=4,
    streamed_bytes=4000,
    whole_files_bytes=600,
    interpreted_bytes=300,
)


def _keyed(sql: str | None) -> TableShape:
    lake_type = LakeType.of_sql(sql or "int")
    assert lake_type is not None
    return TableShape(1, QualifiedName("public", "t"), (LakeColumn("id", 1, lake_type, key=sql is not None),))


def _no_rows(_: SparkSession) -> DataFrame:
    raise AssertionError("nobody reads them")


def _net(rows: int, size: int, columns: NetColumns = NetColumns(_keyed("int"))) -> NetSource:  # noqa: B008
    held = pa.table({"v0": pa.array([0] * size, pa.int8())})
    return NetSource(columns, False, False, None, _no_rows, rows, broadcast=True, in_memory=held)


_KEPT = NetColumns(_keyed("int"), unchanged=(1,))
_SOFT, _HISTORY = (NetColumns(_keyed("int"), mode=mode) for mode in get_args(Mode)[1:3])
_TEN, _MANY = _net(10, 100), _net(100, 1000)
_ADDED = replace(_TEN, insert_only=True)
_KEYLESS = _net(10, 100, NetColumns(_keyed(None)))
_CHANGES = replace(_ADDED, columns=NetColumns(_keyed(None), mode="append"))
_ENDED = replace(_TEN, columns=_SOFT, ended=Moment(Lsn(1), None))
_SMALL = TableFacts(1, 1000, 400, 500, 200)
_LARGE = TableFacts(3, 9000, 4000, 3000, 1200)

_WAYS: dict[str, tuple[NetSource, TableFacts | None, Engine, str]] = {
    "few rows of a small table": (_TEN, _SMALL, "deltalake", "merge"),
    "few rows of a large one": (_TEN, _LARGE, "spark", "merge"),
    "few rows, in small files of a large one": (_TEN, replace(_LARGE, touched_bytes=1000), "deltalake", "merge"),
    "few wide rows of a large one": (_net(10, 3000), _LARGE, "deltalake", "merge"),
    "rows that are only added": (_ADDED, _LARGE, "deltalake", "append"),
    "a small table of many files": (_ADDED, replace(_SMALL, files=4), "deltalake", "rewrite"),
    "much of a table": (_MANY, _SMALL, "deltalake", "rewrite"),
    "a little less": (_net(99, 1000), _SMALL, "deltalake", "merge"),
    "a tenth of a table": (_MANY, replace(_SMALL, rows=1000), "deltalake", "rewrite"),
    "less than a tenth of a table": (_MANY, replace(_LARGE, touched_rows=1001), "spark", "merge"),
    "much of a table too large in files": (_MANY, replace(_SMALL, bytes=4001, touched_bytes=4001), "spark", "rewrite"),
    "much of a table, in wide rows": (_net(100, 2001), _SMALL, "deltalake", "rewrite"),
    "much of a table of unknown rows": (_MANY, replace(_SMALL, rows=None), "deltalake", "merge"),
    "much of the files that are touched": (_MANY, replace(_LARGE, touched_rows=400), "deltalake", "merge"),
    "a TRUNCATE": (replace(_TEN, truncated=True), _LARGE, "deltalake", "overwrite"),
    "a TRUNCATE whose rows stay": (_ENDED, _SMALL, "deltalake", "merge"),
    "the same, of a large table": (_ENDED, _LARGE, "spark", "merge"),
    "no key": (_KEYLESS, _SMALL, "deltalake", "merge"),
    "no key, in small files of a large table": (_KEYLESS, replace(_LARGE, touched_bytes=1000), "deltalake", "merge"),
    "no key in a large table": (_KEYLESS, _LARGE, "spark", "merge"),
    "much without a key": (replace(_KEYLESS, rows=1000), _LARGE, "deltalake", "merge"),
    "much of a table without a key": (replace(_KEYLESS, rows=100), _SMALL, "deltalake", "rewrite"),
    "rows that are only added, without a key": (replace(_KEYLESS, insert_only=True), _LARGE, "deltalake", "append"),
    "a float in the key": (_net(10, 100, NetColumns(_keyed("double"))), _SMALL, "deltalake", "merge"),
    "values that were not sent": (_net(10, 100, _KEPT), _SMALL, "deltalake", "merge"),
    "rows that executors hold": (replace(_MANY, in_memory=None), _SMALL, "spark", "rewrite"),
    "the same, with values that were not sent": (
        replace(_MANY, in_memory=None, columns=_KEPT),
        _SMALL,
        "spark",
        "merge",
    ),
    "a table with something of others": (_TEN, replace(_SMALL, is_plain=False), "spark", "merge"),
    "much of it": (_MANY, replace(_SMALL, is_plain=False), "spark", "rewrite"),
    "much of it, whose readers follow rows": (
        _MANY,
        replace(_SMALL, is_plain=False, is_never_rewritten=True),
        "spark",
        "merge",
    ),
    "a shallow clone": (_TEN, replace(_SMALL, has_files_elsewhere=True), "spark", "merge"),
    "a shallow clone that is added to": (_ADDED, replace(_SMALL, has_files_elsewhere=True), "deltalake", "append"),
    "a table that deltalake cannot open": (_TEN, None, "spark", "merge"),
    "history": (_net(10, 100, _HISTORY), _SMALL, "deltalake", "merge"),
    "deletion vectors in touched files": (_TEN, replace(_SMALL, only_as_a_whole=True), "deltalake", "rewrite"),
    "deletion vectors in those of a large table": (
        _TEN,
        replace(_LARGE, touched_bytes=1000, only_as_a_whole=True),
        "spark",
        "merge",
    ),
    "history of a large table": (_net(10, 100, _HISTORY), _LARGE, "spark", "merge"),
    "much in mode soft_delete": (_net(100, 1000, _SOFT), _SMALL, "deltalake", "rewrite"),
    "changes as rows": (_CHANGES, _LARGE, "deltalake", "append"),
    "changes as rows, in many files": (_CHANGES, replace(_SMALL, files=4), "deltalake", "append"),
}


@pytest.mark.parametrize(("net", "table", "writer", "strategy"), _WAYS.values(), ids=_WAYS)
def test_with_the_engine_auto(net: NetSource, table: TableFacts | None, writer: Engine, strategy: str) -> None:
    way = write_way(net, table, "auto", _LIMITS)
    assert (way.writer, way.strategy) == (writer, strategy)


@pytest.mark.parametrize(("net", "table"), [case[:2] for case in _WAYS.values()], ids=_WAYS)
def test_with_the_engine_spark_it_is_spark(net: NetSource, table: TableFacts | None) -> None:
    way = write_way(net, table, "spark", _LIMITS)
    assert way.writer == "spark"
    assert (way.strategy == net.least) is (way.strategy != "rewrite")


@pytest.mark.parametrize(
    ("net", "table", "expected"),
    [
        (_ADDED, _LARGE, WriteWay("deltalake", "append", compacts=True)),
        (_ADDED, _SMALL, WriteWay("deltalake", "append")),
        (_CHANGES, _SMALL, WriteWay("deltalake", "append", compacts=True)),
        (_MANY, _SMALL, WriteWay("deltalake", "rewrite")),
        (_TEN, _SMALL, WriteWay("deltalake", "merge")),
        (_TEN, replace(_LARGE, touched_bytes=1000), WriteWay("spark", "merge", compacts=True, needs_vectors=True)),
        (_ADDED, replace(_SMALL, has_files_elsewhere=True), WriteWay("spark", "append", compacts=True)),
    ],
)
def test_a_compaction_is_due(net: NetSource, table: TableFacts, expected: WriteWay) -> None:
    assert write_way(net, table, "auto", _LIMITS, compacts=True) == expected


@pytest.mark.parametrize(
    ("touched", "expected"),
    [
        (300, WriteWay("spark", "merge", whole_files=True, interpreted=True)),
        (301, WriteWay("spark", "merge", whole_files=True)),
        (600, WriteWay("spark", "merge", whole_files=True)),
        (601, WriteWay("spark", "merge", needs_vectors=True)),
    ],
)
def test_a_merge_by_spark_of_few_rows_into_small_files(touched: int, expected: WriteWay) -> None:
    table = replace(_SMALL, touched_bytes=touched)
    assert write_way(_TEN, table, "spark", _LIMITS) == expected
    by_executors = replace(_TEN, broadcast=False)
    assert write_way(by_executors, table, "spark", _LIMITS) == WriteWay("spark", "merge", needs_vectors=True)
    assert write_way(by_executors, replace(table, bytes=600), "spark", _LIMITS) == WriteWay("spark", "merge")
    assert write_way(by_executors, None, "spark", _LIMITS) == WriteWay("spark", "merge"), "nobody knows its size"


def test_a_rewrite_by_spark_is_not_compacted() -> None:
    """What it has written itself needs none, and would seem to be another writer's after a second commit."""
    assert write_way(_MANY, _SMALL, "spark", _LIMITS, compacts=True) == WriteWay("spark", "rewrite", broadcasts=True)


def test_a_rewrite_by_spark_sends_so_many_keys_to_all_tasks() -> None:
    for rows, broadcasts in ((500, True), (501, False)):
        way = write_way(replace(_MANY, rows=rows), _SMALL, "spark", _LIMITS)
        assert way == WriteWay("spark", "rewrite", broadcasts=broadcasts)
    assert write_way(replace(_KEYLESS, rows=100), _SMALL, "spark", _LIMITS) == WriteWay("spark", "rewrite")


_LOCAL, _CLUSTER = SparkOptions(master="local[2]"), SparkOptions(master="yarn")


@pytest.mark.parametrize(
    ("engine", "options", "is_small", "writer"),
    [
        ("auto", _LOCAL, False, "deltalake"),
        ("auto", _CLUSTER, False, "spark"),
        ("auto", _CLUSTER, True, "deltalake"),
        ("auto", replace(_LOCAL, handed_in=True), False, "spark"),
        ("auto", replace(_LOCAL, config=(("spark.databricks.delta.x", "1"),)), True, "spark"),
        ("spark", _LOCAL, True, "spark"),
    ],
)
def test_snapshots(engine: MergeEngine, options: SparkOptions, is_small: bool, writer: Engine) -> None:
    assert snapshot_writer(engine, options, is_small=is_small) == writer


@pytest.mark.parametrize(
    ("engine", "options", "layout", "size", "writer"),
    [
        ("auto", _LOCAL, NO_LAYOUT, 1 << 30, "deltalake"),
        ("auto", _CLUSTER, NO_LAYOUT, 0, "deltalake"),
        ("auto", _LOCAL, NO_LAYOUT, (1 << 30) + 1, "spark"),
        ("auto", _LOCAL, TableLayout(properties=(("delta.dataSkippingNumIndexedCols", "1"),)), 0, "spark"),
        ("auto", replace(_LOCAL, config=(("spark.databricks.delta.x", "1"),)), NO_LAYOUT, 0, "spark"),
        ("spark", _LOCAL, NO_LAYOUT, 0, "spark"),
    ],
)
def test_compactions(
    engine: MergeEngine, options: SparkOptions, layout: TableLayout, size: int, writer: Engine
) -> None:
    assert compaction_writer(engine, options, layout, size, WriteLimits()) == writer


def test_who_decodes() -> None:
    limits = WriteLimits(on_driver_bytes=1000, wide_row_bytes=100, wide_rows_factor=3)
    assert limits.are_for_driver(rows=1000, size=1000)
    assert not limits.are_for_driver(rows=1000, size=1001)
    assert not replace(limits, on_driver_rows=999).are_for_driver(rows=1000, size=1000)
    assert limits.are_for_driver(rows=30, size=3000)
    assert not limits.are_for_driver(rows=31, size=3000)
    assert not limits.are_for_driver(rows=30, size=3001)
