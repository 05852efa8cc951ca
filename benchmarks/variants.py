"""Every way to read one WAL: protocol 1, the newest, binary, streamed, prepared, and the lines of test_decoding."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from benchmarks.held_columns import held_columns
from benchmarks.measurement import Measurement, timed
from benchmarks.workload import Size, make_changes, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.apply.landed_changes import LandedChanges, landed_changes
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Lake, Pipeline, Source, Table
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from tests.fixtures.no_spark import no_spark

_TABLE = QualifiedName("public", "variants")
_AT_LEAST = 1 / 1.5  # of the rate of plain protocol 1
_REPEATS = 4
# below it a transaction is sent when it has ended; the workload's are 10,000 changes
_STREAMS_FROM = "64kB"


@dataclass(frozen=True)
class Variant:
    """``source``: the settings that differ from plain protocol 1's."""

    name: str
    source: Mapping[str, Any] = field(default_factory=dict)
    at_least: float | None = _AT_LEAST


PLAIN = Variant("protocol 1", {"proto_version": 1}, at_least=None)
VARIANTS = (
    Variant("protocol 4"),
    Variant("binary", {"binary": True}),
    Variant("streamed", {"streaming": "on"}),
    Variant("two-phase", {"two_phase": True}),
    Variant("two-phase, streamed", {"two_phase": True, "streaming": "on"}),
    Variant("test_decoding", {"plugin": "test_decoding"}, at_least=None),
)


def measure_variants(server: PostgresServer, folder: Path, size: Size) -> Iterator[Measurement]:
    """Capture, and decoding with net change on one core, as ratios to protocol 1's; every transaction is prepared.

    ``folder`` is for the lakes. All must give the same rows, so that fast and wrong cannot be.
    """
    make_table(server, _TABLE, size.rows)
    pipelines = [(each, _pipeline(server, folder, each)) for each in (PLAIN, *VARIANTS)]
    for _, pipeline in pipelines:
        prepare(pipeline)
    make_changes(server, size, _TABLE, prepared=True)
    plain_seconds = expected = None
    for variant, pipeline in pipelines:
        landed, captured = _captured(server, pipeline)
        rows, decoded = _decoded(landed)
        expected, plain_seconds = expected or rows, plain_seconds or (captured, decoded)
        if not rows.equals(expected):
            raise AssertionError(f"{variant.name} gives other rows than {PLAIN.name}")
        for what, seconds, plain in zip(("capture", "decode and net"), (captured, decoded), plain_seconds, strict=True):
            yield Measurement(
                f"{what}, {variant.name}", seconds, size.changes, plain / seconds, at_least=variant.at_least
            )


def _pipeline(server: PostgresServer, folder: Path, variant: Variant) -> Pipeline:
    name = "v_" + "".join(letter for letter in variant.name.lower() if letter.isalnum())
    streams = variant.source.get("streaming", "off") != "off"
    # not for the others: they would have to spill what they may not send
    settings = {"options": f"-c logical_decoding_work_mem={_STREAMS_FROM}"} if streams else {}
    dsn = SecretStr(make_conninfo(server.dsn(), **settings))
    source = replace(Source(dsn, slot=name, publication="variants"), **variant.source)
    return Pipeline(name, source, Lake(str(folder / name)), tables=(Table(_TABLE),))


def _captured(server: PostgresServer, pipeline: Pipeline) -> tuple[LandedChanges, float]:
    """The best of a few; each begins where the slot stood."""
    slot, kept = pipeline.source.slot, f"{pipeline.source.slot}_kept"
    before = Path(f"{pipeline.lake.path}_before")
    shutil.copytree(pipeline.lake.path, before)
    best = None
    with psycopg.connect(server.dsn(), autocommit=True) as control:
        control.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [slot, kept])
        for _ in range(_REPEATS):
            shutil.rmtree(pipeline.lake.path)
            shutil.copytree(before, pipeline.lake.path)
            control.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            control.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [kept, slot])
            _, seconds = timed(lambda: capture(pipeline))
            best = min(best or seconds, seconds)
        for each in (slot, kept):
            control.execute("SELECT pg_drop_replication_slot(%s)", [each])
    assert best is not None
    return _landed(pipeline), best


def _landed(pipeline: Pipeline) -> LandedChanges:
    markers = ChangeLog(pipeline.lake.change_log).markers()
    relid = next(counts.relid for marker in markers for counts in marker.relations if counts.relname == _TABLE.relname)
    begin = markers[0].window.lo
    state = TableState(_TABLE, Generation(begin), 0, 0)
    columns = held_columns(ChangeLog(pipeline.lake.change_log), relid)
    landed = landed_changes(TableRange(Run(pipeline, no_spark), state, markers[1:]), columns)
    assert landed is not None
    return landed


def _decoded(landed: LandedChanges) -> tuple[pa.Table, float]:
    """The net rows in the key's order, and the best of a few on one core."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    best = None
    for _ in range(_REPEATS):
        net, seconds = timed(lambda: net_change(landed.rows, landed.rules))
        best = min(best or seconds, seconds)
    pa.set_cpu_count(threads)
    assert best is not None
    return net.rows.sort_by("v0"), best
