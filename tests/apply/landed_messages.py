"""A pipeline that follows logical messages, and windows of them in its change log; no server, no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from spark_jobs.apply.apply_messages import apply_messages
from spark_jobs.apply.plan import plan_apply
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake, Pipeline, Source, Table
from spark_jobs.decode.message_columns import MESSAGES_SCHEMA
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.messages import LogicalMessage
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from tests.change_log.identity import IDENTITY
from tests.fixtures.no_spark import no_spark
from tests.wire import write_message

FOLLOWED = Table(QualifiedName("public", "orders"))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    source = Source(SecretStr("dbname=shop"), "sl", "shop", messages=True)
    made = Pipeline("shop", source, Lake(str(tmp_path / "lake")), tables=(FOLLOWED,))
    log = ChangeLog(made.lake.change_log)
    log.create()
    land(made, 0, [])
    return made


def message(number: int, prefix: str = "outbox") -> bytes:
    return write_message(LogicalMessage(True, Lsn(number), prefix, f"content {number}".encode()))


def land(pipeline: Pipeline, ordinal: int, messages: Sequence[bytes], changes: int = 0) -> WindowMarker:
    """One window of one transaction: these messages, and inserts that are none."""
    place = {"window": ordinal, "commit_lsn": 100 * ordinal, "xid": 700 + ordinal}
    rows = [{**place, "ordinal": n, "kind": "M", "data": data} for n, data in enumerate(messages)]
    rows += [{**place, "ordinal": n, "kind": "I", "relid": 1, "data": b"I"} for n in range(changes)]
    marker = WindowMarker(
        ordinal,
        Window(Lsn(100 * ordinal), Lsn(100 * ordinal + 100)),
        IDENTITY,
        logical_messages=len(messages),
    )
    batches = [pa.RecordBatch.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)] if rows else []
    assert ChangeLog(pipeline.lake.change_log).land(IDENTITY, ordinal, [*batches, marker_row(marker)])
    return marker


def applied(pipeline: Pipeline, *, upto: Lsn | None = None) -> TableApplied:
    run = Run(pipeline, no_spark)
    return apply_messages(run, plan_apply(run, upto=upto))


def rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    table = DeltaTable(pipeline.lake.messages).to_pyarrow_table()
    assert table.schema.names == MESSAGES_SCHEMA.names
    messages: list[dict[str, Any]] = table.sort_by(
        [("commit_lsn_number", "ascending"), ("ordinal", "ascending")]
    ).to_pylist()
    return messages


def contents(pipeline: Pipeline) -> list[str]:
    return [row["content"].decode() for row in rows(pipeline)]
