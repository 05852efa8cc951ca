"""The columns of our tables as Delta's log describes them.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.table_shape import LakeColumn, of_source
from spark_jobs.table_mode import Mode
from spark_jobs.writers.field_metadata import ATTNUM, MODE, Metadata, annotated
from spark_jobs.writers.opened_table import COLUMN_ID, PHYSICAL, SPARK_NAMES

Field = Metadata
_DELTA_NAMES = {spark: delta for delta, spark in SPARK_NAMES.items()}


def delta_fields(
    columns: Sequence[LakeColumn],
    mode: Mode,
    physical: Sequence[str],
    ids: Sequence[int | None],
    annotations: TableAnnotations | None = None,
) -> list[Field]:
    """The source's columns, then the table's own, with their names and numbers in the data files. ``annotations``: what
    the source says about its columns, if that is known."""
    known = annotations.by_number if annotations is not None else {}
    fields: list[tuple[str, str, Metadata]] = [
        (each.name, each.lake_type.sql, annotated({ATTNUM: each.attnum}, known.get(each.attnum)))
        for each in of_source(columns)
    ]
    fields += [(each.name, each.lake_type.sql, {MODE: mode}) for each in columns if each.of_commit]
    fields += [(each.name, each.sql, {MODE: mode}) for each in mode_columns(mode)]
    return [_field(*each, name, number) for each, name, number in zip(fields, physical, ids, strict=True)]


def schema_string(fields: Sequence[Mapping[str, object]]) -> str:
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def _field(name: str, sql: str, metadata: Metadata, physical: str, number: int | None) -> Field:
    """https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping"""
    if number is not None:
        metadata = metadata | {COLUMN_ID: number, PHYSICAL: physical}
    return {"name": name, "type": _delta_type(sql), "nullable": True, "metadata": metadata}


def _delta_type(sql: str) -> str | Field:
    known = LakeType.of_sql(sql)
    if known is not None and known.kind is LakeKind.ARRAY and known.element is not None:
        return {"type": "array", "elementType": _delta_type(known.element.sql), "containsNull": True}
    return _DELTA_NAMES.get(sql, sql)
