"""The list of a table's files after a commit of our own, as ``deltalake`` would list them, but without reading the log.

Of statistics it has least and greatest values of integers and dates, by which ``files_in_range`` chooses. Where others
would be, the list says nothing, as if the file had none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction


def files_after(files: pa.Table, actions: Sequence[AddAction | RemoveAction]) -> pa.Table:
    """``files``: those before the commit of these actions, as ``get_add_actions`` lists them, flattened."""
    removed = pa.array([each.path for each in actions if isinstance(each, RemoveAction)], pa.string())
    stays = pc.invert(pc.is_in(files.column("path").cast(pa.string()), removed))
    added = [_listed(each, files.schema) for each in actions if isinstance(each, AddAction)]
    return pa.concat_tables([files.filter(stays), pa.Table.from_pylist(added, files.schema)])


def _listed(file: AddAction, schema: pa.Schema) -> dict[str, Any]:
    stats = json.loads(file.stats)
    ends = {"min": stats.get("minValues") or {}, "max": stats.get("maxValues") or {}}
    row: dict[str, Any] = {
        "path": file.path,
        "size_bytes": file.size,
        "modification_time": file.modification_time,
        "num_records": stats["numRecords"],
    }
    for field in schema:
        end, _, name = field.name.partition(".")
        value = ends[end].get(name) if end in ends else None
        if value is not None and pa.types.is_integer(field.type):
            row[field.name] = value
        elif value is not None and pa.types.is_date(field.type):
            row[field.name] = date.fromisoformat(value)
    return row
