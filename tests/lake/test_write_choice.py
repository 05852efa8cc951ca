"""How a table is written, by counts and sizes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.configuration import MergeEngine, SparkOptions
from spark_jobs.lake.write_choice import ChangeFacts, Engine, TableFacts, WriteWay, snapshot_writer, write_way
from spark_jobs.table_mode import Mode
from spark_jobs.write_limits import WriteLimits

_LIMITS = WriteLimits(
    rewritten_rows=100,
    rewritten_share=0.25,
    broadcast_keys=500,
    small_bytes=1000,
    wide_row_bytes=50,
    many_files=4,
    in_memory_bytes=8000,
    in_files_bytes=4000,
    whole_files_bytes=600,
    interpreted_bytes=300,
)
_TEN = ChangeFacts(
    10,
    100,
    "merge",
    "mirror",
    has_key=True,
    has_plain_key=True,
    keeps_values=False,
    ends_all=False,
    is_broadcast=True,
    compacts=False,
)
_MANY = replace(_TEN, rows=100, bytes=1000)
_ADDED = replace(_TEN, needs="append")
_SMALL = TableFacts(1, 1000, 400, 500, 200)
_LARGE = TableFacts(3, 9000, 4000, 3000, 1200)

_WAYS: dict[str, tuple[ChangeFacts, TableFacts | None, Engine, str]] = {
    "few rows of a small table": (_TEN, _SMALL, "deltalake", "merge"),
    "few rows of a large one": (_TEN, _LARGE, "spark", "merge"),
    "few rows, in small files of a large one": (_TEN, replace(_LARGE, touched_bytes=1000), "deltalake", "merge"),
    "few wide rows of a large one": (replace(_TEN, bytes=3000), _LARGE, "deltalake", "merge"),
    "rows that are only added": (_ADDED, _LARGE, "deltalake", "append"),
    "the same, and a compaction is due": (replace(_ADDED, compacts=True), _LARGE, "spark", "append"),
    "the same of a small table": (replace(_ADDED, compacts=True), _SMALL, "deltalake", "append"),
    "a small table of many files": (_ADDED, replace(_SMALL, files=4), "deltalake", "rewrite"),
    "much of a table": (_MANY, _SMALL, "deltalake", "rewrite"),
    "much, and a compaction is due": (replace(_MANY, compacts=True), _SMALL, "deltalake", "rewrite"),
    "a little less": (replace(_MANY, rows=99), _SMALL, "deltalake", "merge"),
    "much of a table too large in files": (_MANY, replace(_SMALL, bytes=4001, touched_bytes=4001), "spark", "rewrite"),
    "too large in memory": (replace(_MANY, bytes=2001), _SMALL, "deltalake", "merge"),
    "much of a table of unknown rows": (_MANY, replace(_SMALL, rows=None), "deltalake", "merge"),
    "much of the files that are touched": (_MANY, replace(_LARGE, touched_rows=400), "deltalake", "merge"),
    "a merge into a large table, and a compaction is due": (
        replace(_TEN, compacts=True),
        replace(_LARGE, touched_bytes=1000),
        "spark",
        "merge",
    ),
    "a TRUNCATE": (replace(_TEN, needs="overwrite"), _SMALL, "spark", "overwrite"),
    "a TRUNCATE whose rows stay": (replace(_TEN, ends_all=True, mode="soft_delete"), _SMALL, "spark", "merge"),
    "no key": (replace(_TEN, has_key=False), _SMALL, "spark", "merge"),
    "a float in the key": (replace(_TEN, has_plain_key=False), _SMALL, "spark", "merge"),
    "values that were not sent": (replace(_TEN, keeps_values=True), _SMALL, "deltalake", "merge"),
    "rows that executors hold": (replace(_MANY, bytes=None), _SMALL, "spark", "rewrite"),
    "the same, with values that were not sent": (
        replace(_MANY, bytes=None, keeps_values=True),
        _SMALL,
        "spark",
        "merge",
    ),
    "a table with something of others": (_TEN, replace(_SMALL, is_plain=False), "spark", "merge"),
    "much of it": (_MANY, replace(_SMALL, is_plain=False), "spark", "rewrite"),
    "much of it, whose readers follow rows": (
        _MANY,
        replace(_SMALL, is_plain=False, is_read_row_by_row=True),
        "spark",
        "merge",
    ),
    "a shallow clone": (_TEN, replace(_SMALL, has_files_elsewhere=True), "spark", "merge"),
    "a shallow clone that is added to": (_ADDED, replace(_SMALL, has_files_elsewhere=True), "deltalake", "append"),
    "a table that deltalake cannot open": (_TEN, None, "spark", "merge"),
    "history": (replace(_TEN, mode="history"), _SMALL, "spark", "merge"),
    "much in mode soft_delete": (replace(_MANY, mode="soft_delete"), _SMALL, "spark", "merge"),
    "changes as rows": (replace(_ADDED, mode="append"), _SMALL, "spark", "append"),
}


@pytest.mark.parametrize(("change", "table", "writer", "strategy"), _WAYS.values(), ids=_WAYS)
def test_with_the_engine_auto(change: ChangeFacts, table: TableFacts | None, writer: Engine, strategy: str) -> None:
    way = write_way(change, table, "auto", _LIMITS)
    assert (way.writer, way.strategy) == (writer, strategy)


@pytest.mark.parametrize(("change", "table"), [case[:2] for case in _WAYS.values()], ids=_WAYS)
def test_with_the_engine_spark_it_is_spark(change: ChangeFacts, table: TableFacts | None) -> None:
    way = write_way(change, table, "spark", _LIMITS)
    assert way.writer == "spark"
    assert way.compacts is change.compacts
    assert (way.strategy == change.needs) is (way.strategy != "rewrite")


@pytest.mark.parametrize(
    ("touched", "expected"),
    [
        (300, WriteWay("spark", "merge", whole_files=True, interpreted=True)),
        (301, WriteWay("spark", "merge", whole_files=True)),
        (600, WriteWay("spark", "merge", whole_files=True)),
        (601, WriteWay("spark", "merge")),
    ],
)
def test_a_merge_by_spark_of_few_rows_into_small_files(touched: int, expected: WriteWay) -> None:
    table = replace(_SMALL, touched_bytes=touched)
    assert write_way(_TEN, table, "spark", _LIMITS) == expected
    assert write_way(replace(_TEN, is_broadcast=False), table, "spark", _LIMITS) == WriteWay("spark", "merge")


def test_a_rewrite_by_spark_sends_so_many_keys_to_all_tasks() -> None:
    for rows, broadcasts in ((500, True), (501, False)):
        way = write_way(replace(_MANY, rows=rows), _SMALL, "spark", _LIMITS)
        assert way == WriteWay("spark", "rewrite", broadcasts=broadcasts)


_LOCAL, _CLUSTER = SparkOptions(master="local[2]"), SparkOptions(master="yarn")


@pytest.mark.parametrize(
    ("engine", "mode", "options", "is_small", "writer"),
    [
        ("auto", "mirror", _LOCAL, False, "deltalake"),
        ("auto", "mirror", _CLUSTER, False, "spark"),
        ("auto", "mirror", _CLUSTER, True, "deltalake"),
        ("auto", "mirror", replace(_LOCAL, handed_in=True), False, "spark"),
        ("auto", "mirror", replace(_LOCAL, config=(("spark.databricks.delta.x", "1"),)), True, "spark"),
        ("auto", "history", _LOCAL, True, "spark"),
        ("spark", "mirror", _LOCAL, True, "spark"),
    ],
)
def test_snapshots(engine: MergeEngine, mode: Mode, options: SparkOptions, is_small: bool, writer: Engine) -> None:
    assert snapshot_writer(engine, mode, options, is_small=is_small) == writer


def test_who_decodes() -> None:
    limits = WriteLimits(on_driver_bytes=1000, wide_row_bytes=100, wide_rows_factor=3)
    assert limits.are_for_driver(rows=1000, size=1000)
    assert not limits.are_for_driver(rows=1000, size=1001)
    assert limits.are_for_driver(rows=30, size=3000)
    assert not limits.are_for_driver(rows=31, size=3000)
    assert not limits.are_for_driver(rows=30, size=3001)
