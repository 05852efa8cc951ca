"""The fields of our tables in Delta's log: what each says of a column, how they are read, and how they are written.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format

What the source says about a table is a field's ``comment`` and the table's description, which every reader shows, and
keys of our own in a field's metadata, which readers ignore. A comment of the source replaces any other. One that
somebody else has written stays where the source has none, so it is recorded which are the source's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from deltalake import DeltaTable

from spark_jobs.options.table_mode import Mode
from spark_jobs.schema.annotations import ColumnAnnotations, TableAnnotations
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.mode_columns import mode_columns
from spark_jobs.schema.table_shape import LakeColumn, TableShape, of_source

Metadata: TypeAlias = dict[str, Any]
Field: TypeAlias = dict[str, Any]

# a name may be reused for another column, a number never is
ATTNUM = "pg_attribute.attnum"
MODE = "postgres_cdc.mode"  # of columns that the source does not have
COMMENT = "comment"  # as Spark has it, too
TYPE, PRIMARY_KEY, MASKED = "postgres.type", "postgres.primary_key", "postgres.masked"
COMMENTED = "postgres.commented"  # the comment is the source's: in a field's metadata, and a property of the table
_OURS = (TYPE, PRIMARY_KEY, MASKED, COMMENTED)
PHYSICAL = "delta.columnMapping.physicalName"
COLUMN_ID = "delta.columnMapping.id"
MAX_ID = "delta.columnMapping.maxColumnId"
# of the types to which Delta's schema and Spark give different names
_SPARK_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
_DELTA_NAMES = {spark: delta for delta, spark in _SPARK_NAMES.items()}


def known_fields(table: DeltaTable) -> Sequence[Mapping[str, Any]] | None:
    """The fields of the table's schema as Delta's protocol describes them. None if one is a struct or a map: for it
    ``deltalake`` may have another type than Spark."""
    fields = json.loads(table.schema().to_json())["fields"]
    return fields if all(sql_type(field["type"]) for field in fields) else None


def sql_type(of_field: str | Mapping[str, Any]) -> str | None:
    """A type of Delta's schema as Spark SQL calls it; None for a struct or a map."""
    if isinstance(of_field, str):
        return _SPARK_NAMES.get(of_field, of_field)
    element = sql_type(of_field["elementType"]) if of_field["type"] == "array" else None
    return element and f"array<{element}>"


def source_columns(fields: Sequence[Mapping[str, Any]]) -> tuple[DeltaColumn, ...]:
    """Those of ``known_fields`` that the source has too."""
    return tuple(
        DeltaColumn(field["name"], sql_type(field["type"]) or "", field["metadata"].get(ATTNUM))
        for field in fields
        if MODE not in field["metadata"]
    )


def has_columns_of(lake_columns: Sequence[DeltaColumn], shape: TableShape) -> bool:
    """Whether these are the columns of ``shape``, by names, types, and numbers if these are known."""
    before = {column.name: (column.sql, column.attnum) for column in lake_columns}
    now = {column.name: (column.lake_type.sql, column.attnum) for column in shape.columns}
    return before.keys() == now.keys() and all(before[n] in (now[n], (now[n][0], None)) for n in now)


def said_in(metadata: Mapping[str, Any]) -> Metadata:
    """Those of a field's keys that are about what the source says, or anybody else."""
    return {name: value for name, value in metadata.items() if name in (COMMENT, *_OURS)}


def annotated(metadata: Mapping[str, Any], annotations: ColumnAnnotations | None) -> Metadata:
    """A field's ``metadata`` with what the source says of its column; as it is if that is not known."""
    if annotations is None:
        return {**metadata}
    replaced = (*_OURS, COMMENT) if annotations.comment or metadata.get(COMMENTED) else _OURS
    now: Metadata = {name: value for name, value in metadata.items() if name not in replaced}
    now[TYPE] = annotations.type
    if annotations.primary_key is not None:
        now[PRIMARY_KEY] = annotations.primary_key
    if annotations.masked:
        now[MASKED] = True
    if annotations.comment:
        now |= {COMMENT: annotations.comment, COMMENTED: True}
    return now


def annotated_fields(fields: Sequence[Mapping[str, Any]], annotations: TableAnnotations) -> list[Field]:
    """The ``fields`` of a table's schema with what the source says of each."""
    known = annotations.by_number
    return [
        {**field, "metadata": annotated(field["metadata"], known.get(field["metadata"].get(ATTNUM)))}
        for field in fields
    ]


def description(now: str | None, properties: Mapping[str, str], annotations: TableAnnotations) -> str | None:
    """The table's description, which is ``now`` another or none; None if it stays."""
    is_due = annotations.comment or properties.get(COMMENTED) == "true"
    return annotations.comment if is_due and annotations.comment != (now or "") else None


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
