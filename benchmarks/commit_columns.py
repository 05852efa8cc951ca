"""What commit columns cost: the same changes captured and applied to a table with them and to one without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measurement import Measurement, timed
from benchmarks.workload import Size, make_changes, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.configuration import Pipeline, Table
from spark_jobs.options.table_mode import CommitColumn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.no_spark import no_spark

_TABLE = QualifiedName("public", "marked")
_BOTH: tuple[CommitColumn, ...] = ("_commit_lsn", "_commit_time")
_AT_LEAST = 1 / 1.05  # of the rate without them
_REPEATS = 3


def measure_commit_columns(
    server: PostgresServer, pipeline_of: Callable[[str, tuple[QualifiedName, ...]], Pipeline], size: Size
) -> Iterator[Measurement]:
    """Without Spark. Two pipelines follow one table, in turns, each time with 9 units of changes; the best counts."""
    make_table(server, _TABLE, size.rows)
    forms: dict[str, tuple[CommitColumn, ...]] = {"without": (), "with": _BOTH}
    pipelines = {
        name: replace(
            pipeline_of(f"marks_{name}", (_TABLE,)),
            merge_engine="auto",
            tables=(Table(_TABLE, metadata_columns=columns),),
        )
        for name, columns in forms.items()
    }
    took = {name: [_synced(pipeline)] for name, pipeline in pipelines.items()}
    for name, (seconds,) in took.items():
        yield Measurement(f"snapshot {name} commit columns", seconds, size.rows, took["without"][0] / seconds)
    for _ in range(_REPEATS):
        make_changes(server, size, _TABLE)
        for name, pipeline in pipelines.items():
            took[name].append(_synced(pipeline))
    best = {name: min(seconds[1:]) for name, seconds in took.items()}
    for name, seconds in best.items():
        target = _AT_LEAST if forms[name] else None
        ratio = best["without"] / seconds
        yield Measurement(f"end to end {name} commit columns", seconds, size.changes, ratio, at_least=target)
    for name, pipeline in pipelines.items():
        stored = sum(file.stat().st_size for file in Path(pipeline.lake.table(_TABLE)).rglob("*.parquet"))
        yield Measurement(f"data files {name} commit columns, all versions", mebibytes=stored / (1 << 20))


def _synced(pipeline: Pipeline) -> float:
    report, seconds = timed(lambda: sync(pipeline, no_spark))
    for error in report.errors:
        raise error
    return seconds
