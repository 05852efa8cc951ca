"""A table's metadata changed without Spark, in a commit of its own: columns, features and properties, but no rows.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#change-metadata
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from spark_jobs.delta.own_commit import Action, commit_info, write_commit
from spark_jobs.delta.table import overtaken
from spark_jobs.delta.transaction_log import note_version
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.column_changes import ColumnChanges
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.writers.delta_fields import (
    ATTNUM,
    COLUMN_ID,
    COMMENTED,
    MAX_ID,
    PHYSICAL,
    Field,
    annotated_fields,
    delta_fields,
    description,
    schema_string,
)
from spark_jobs.writers.table_features import COLUMN_MAPPING, MAPPED_NAMES, features_of_columns
from spark_jobs.writers.with_arrow.opened_table import FEATURES, OpenedTable

_OF_READERS = {"columnMapping", "deletionVectors", "timestampNtz"}
_ALWAYS = {"appendOnly", "invariants"}
_INDEXED = "delta.dataSkippingStatsColumns"  # names columns


@dataclass(frozen=True)
class MetadataChange:
    """``features`` that the table gets, its new ``properties``, and its ``fields`` and ``description`` if they
    change."""

    features: frozenset[str] = frozenset()
    properties: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[Field] | None = None
    description: str | None = None

    def __bool__(self) -> bool:
        return bool(self.features or self.properties or self.fields or self.description is not None)


def commit_metadata(opened: OpenedTable, change: MetadataChange) -> None:
    """Commit the change, and no number of ours. Raises LakeError; OvertakenError if somebody has committed since the
    table was opened."""
    version = opened.opened.log.version + 1
    if not write_commit(opened.path, version, _actions(opened, change)):
        raise overtaken(opened.path)
    note_version(opened.path, version)


def columns_altered(opened: OpenedTable, changes: ColumnChanges) -> MetadataChange | None:
    """The change that follows DDL in place: columns are dropped and renamed by column mapping, and added without a
    value. None if Spark has to do it."""
    fields = opened.fields
    features = MAPPED_NAMES if changes.dropped or changes.renamed else features_of_columns(changes.added)
    names = frozenset(feature.name for feature in features)
    if not names | opened.features <= FEATURES or _INDEXED in opened.table.metadata().configuration:
        return None
    if any(column.lake_type.kind is LakeKind.VARIANT for column in changes.added):
        return None
    is_mapped, properties = opened.is_mapped, dict[str, str]()
    most = opened.max_id
    if COLUMN_MAPPING in features and not is_mapped:
        fields = [_mapped(each, number) for number, each in enumerate(fields, 1)]
        is_mapped, most = True, len(fields)
        properties |= {COLUMN_MAPPING.key: COLUMN_MAPPING.value}
    dropped = {column.attnum for column in changes.dropped}
    renamed = {new.attnum: new.name for _, new in changes.renamed}
    kept = [_renamed(each, renamed) for each in fields if each["metadata"].get(ATTNUM, 0) not in dropped]
    numbers = [*range(most + 1, most + 1 + len(changes.added))] if is_mapped else [None] * len(changes.added)
    physical = [f"col-{uuid4()}" if is_mapped else column.name for column in changes.added]
    if is_mapped:
        properties |= {MAX_ID: str(most + len(changes.added))}
    return MetadataChange(names, properties, [*kept, *delta_fields(changes.added, "mirror", physical, numbers)])


def said_by_source(opened: OpenedTable, annotations: TableAnnotations) -> MetadataChange:
    """The change after which the table says what the source says about it. Nothing changes if it does already."""
    metadata, fields = opened.table.metadata(), annotated_fields(opened.fields, annotations)
    text = description(metadata.description, metadata.configuration, annotations)
    properties = {} if text is None else {COMMENTED: "true" if text else "false"}
    return MetadataChange(properties=properties, fields=fields if fields != opened.fields else None, description=text)


def _mapped(field: Mapping[str, Any], number: int) -> Field:
    return {**field, "metadata": {**field["metadata"], COLUMN_ID: number, PHYSICAL: field["name"]}}


def _renamed(field: Mapping[str, Any], names: Mapping[int, str]) -> Field:
    return {**field, "name": names.get(field["metadata"].get(ATTNUM, 0), field["name"])}


def _actions(opened: OpenedTable, change: MetadataChange) -> Iterable[Action]:
    known, names = opened.table.metadata(), opened.features | change.features
    yield commit_info("SET TBLPROPERTIES" if change.fields is None else "CHANGE COLUMNS", {})
    if change.features - opened.features:
        yield {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": sorted(names & _OF_READERS),
                "writerFeatures": sorted(names | _ALWAYS),
            }
        }
    text = known.description if change.description is None else change.description
    described = {"name": known.name, "description": text or None}
    schema = opened.schema.to_json() if change.fields is None else schema_string(change.fields)
    yield {
        "metaData": {
            "id": str(known.id),
            **{name: text for name, text in described.items() if text is not None},
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": {**known.configuration, **change.properties},
            "createdTime": known.created_time,
        }
    }
