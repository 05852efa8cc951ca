"""What the schema of a Delta table says of each column, beside its name and type: keys in the metadata of its field.

What the source says about a table is a field's ``comment`` and the table's description, which every reader shows, and
keys of our own, which readers ignore. A comment of the source replaces any other. One that somebody else has written
stays where the source has none, so it is recorded which are the source's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from spark_jobs.schema.annotations import ColumnAnnotations, TableAnnotations

Metadata: TypeAlias = dict[str, Any]

# a name may be reused for another column, a number never is
ATTNUM = "pg_attribute.attnum"
MODE = "postgres_cdc.mode"  # of columns that the source does not have
COMMENT = "comment"  # as Spark has it, too
TYPE, PRIMARY_KEY, MASKED = "postgres.type", "postgres.primary_key", "postgres.masked"
COMMENTED = "postgres.commented"  # the comment is the source's: in a field's metadata, and a property of the table
_OURS = (TYPE, PRIMARY_KEY, MASKED, COMMENTED)


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


def annotated_fields(fields: Sequence[Mapping[str, Any]], annotations: TableAnnotations) -> list[dict[str, Any]]:
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
