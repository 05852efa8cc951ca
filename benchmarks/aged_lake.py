"""A lake as years leave it when nobody maintains it: one small file, and one commit, for each window and each cut.

``age`` makes it behind a slot that was just prepared: what follows is landed and applied as ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.lake.cuts import CUTS_SCHEMA, TableCut, latest_cut, write_cut
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.qualified_name import QualifiedName

# the versions behind the last checkpoint, as deltalake leaves them
_BEHIND_CHECKPOINT = 50
_MINUTE = 60_000


def age(pipeline: Pipeline, windows: int) -> None:
    """Put ``windows`` windows, and as many cuts, before the first of a log that holds nothing else."""
    log = ChangeLog(pipeline.lake.change_log)
    first = log.checkpoint()
    if first is None or first.ordinal:
        raise ValueError(f"{log.path} is not the log of a slot that was just prepared")
    _append(log.path, "window", _windows(first, windows), {"appId": first.identity.app_id})
    cut = TableCut(QualifiedName("public", "of_old"), 1, first.window.hi.key, 0)
    write_cut(pipeline.lake, 0, first.window.lo, (cut,))
    _append(pipeline.lake.cuts, "cut", _cuts(pipeline.lake, windows), {"appId": "pgcdc:cuts"})


def _windows(first: WindowMarker, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Empty ones, at the place where the slot stands."""
    at = first.window.hi
    for ordinal in range(1, count + 1):
        marker = replace(first, ordinal=ordinal, window=Window(at, at))
        yield ordinal, pa.Table.from_batches([marker_row(marker)])


def _cuts(lake: Lake, count: int) -> Iterator[tuple[int, pa.Table]]:
    latest = latest_cut(lake)
    assert latest is not None
    (table,) = latest.tables
    for number in range(2, count + 2):
        row = {"cut": number, "window": 0, "lsn": int(latest.lsn), "nspname": table.name.nspname}
        row |= {"relname": table.name.relname, "relid": table.relid, "generation": table.generation}
        yield number, pa.Table.from_pylist([{**row, "version": table.version, "commits": 1}], schema=CUTS_SCHEMA)


def _append(path: str, column: str, files: Iterable[tuple[int, pa.Table]], txn: Mapping[str, str]) -> None:
    """One commit for each file, a minute apart, the last of them now; and the checkpoint that follows on most."""
    table, log = DeltaTable(path), Path(path, "_delta_log")
    appended = list(files)
    began = int(time.time() * 1000) - len(appended) * _MINUTE
    for place, (number, rows) in enumerate(appended, 1):
        name = f"part-{number:08}.zstd.parquet"
        pq.write_table(rows, Path(path, name), compression="zstd")
        add = {
            "path": name,
            "partitionValues": {},
            "size": Path(path, name).stat().st_size,
            "modificationTime": began + place * _MINUTE,
            "dataChange": True,
            "stats": json.dumps(_statistics(rows, column)),
        }
        actions = [{"commitInfo": {"operation": "WRITE"}}, {"add": add}, {"txn": {**txn, "version": number}}]
        text = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
        (log / f"{table.version() + place:020}.json").write_text(text)
        if place == len(appended) - _BEHIND_CHECKPOINT:
            DeltaTable(path).create_checkpoint()


def _statistics(rows: pa.Table, column: str) -> dict[str, object]:
    first = rows.select([name for name in (column, "ordinal", "commit_lsn") if name in rows.column_names])
    values = first.to_pylist()[0]
    return {"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": dict.fromkeys(values, 0)}
