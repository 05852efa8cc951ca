"""A lake as years leave it when nobody runs ``postgres-cdc maintain``: one commit for each window and each cut, and
what syncs did in passing: checkpoints, log clean-up, and compaction.

``age`` makes it behind a slot that was just prepared: what follows is landed and applied as ever.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.retention import compact_log_in_passing
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.delta.upkeep import CountedTable, compact_in_passing
from spark_jobs.lake.cuts import CUTS_LAYOUT, CUTS_SCHEMA, TableCut, cut_files, latest_cut, write_cut
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.qualified_name import QualifiedName

_CHECKPOINT_EVERY, _COMPACTED_EVERY = 10, 1000  # commits
_BEHIND_CHECKPOINT = 5  # commits after the last checkpoint
# the clock runs too fast here for what happens a day later: old commits and removed files are forgotten at once
_FORGETFUL = {"delta.logRetentionDuration": "interval 0 days", "delta.deletedFileRetentionDuration": "interval 0 days"}
_MINUTE = 60_000


def age(pipeline: Pipeline, windows: int) -> None:
    """Put ``windows`` windows, and as many cuts, before the first of a log that holds nothing else."""
    log = ChangeLog(pipeline.lake.change_log)
    first = log.checkpoint()
    if first is None or first.ordinal:
        raise ValueError(f"{log.path} is not the log of a slot that was just prepared")
    _append(
        log.path,
        "window",
        _windows(first, windows),
        {"appId": first.identity.app_id},
        partial(compact_log_in_passing, log),
    )
    cut = TableCut(QualifiedName("public", "of_old"), 1, first.window.hi.key, 0)
    write_cut(pipeline.lake, 0, first.window.lo, (cut,))
    cuts = CountedTable(cut_files(pipeline.lake), CUTS_LAYOUT)
    txn = {"appId": "pgcdc:cuts"}
    _append(pipeline.lake.cuts, "cut", _cuts(pipeline.lake, windows), txn, partial(compact_in_passing, cuts))


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


def _append(
    path: str,
    column: str,
    files: Iterable[tuple[int, pa.Table]],
    txn: Mapping[str, str],
    compact: Callable[[int], None],
) -> None:
    """One commit for each file, a minute apart, the last of them now; and what follows now and then on a commit."""
    table, log = DeltaTable(path), Path(path, "_delta_log")
    usual = {name: value for name, value in table.metadata().configuration.items() if name in _FORGETFUL}
    table.alter.set_table_properties(_FORGETFUL)
    version = table.version()
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
        version += 1
        (log / f"{version:020}.json").write_text(text)
        behind = len(appended) - place
        if behind == _BEHIND_CHECKPOINT or (behind > _BEHIND_CHECKPOINT and number % _CHECKPOINT_EVERY == 0):
            aged = DeltaTable(path)
            if behind == _BEHIND_CHECKPOINT:
                aged.alter.set_table_properties(usual)
            aged.create_checkpoint()
            aged.cleanup_metadata()
            if number % _COMPACTED_EVERY == 0:
                compact(number)
            version = DeltaTable(path).version()


def _statistics(rows: pa.Table, column: str) -> dict[str, object]:
    first = rows.select([name for name in (column, "ordinal", "commit_lsn") if name in rows.column_names])
    values = first.to_pylist()[0]
    return {"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": dict.fromkeys(values, 0)}
