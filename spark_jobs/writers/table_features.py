"""Delta's table features. A table gets each with the first thing that needs it: every reader of the table has to know
the features that it has, and many know few.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINT_PROPERTY
from spark_jobs.object_stores import store_of
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.table_shape import LakeColumn

# Delta's default has no limit, but a session may set another default for new tables. If a table forgot our transaction
# identifier, it would accept the same commit twice
TRANSACTIONS_STAY = {"delta.setTransactionRetentionDuration": "interval 36500 days"}

_NOT_IN_PARQUET = frozenset(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Feature:
    """The ``name`` of a feature in the protocol, and the table property by which a table gets it."""

    name: str
    key: str
    value: str


# a new table gets it by itself; one that exists refuses its first such column without it
TIMESTAMP_NTZ = Feature("timestampNtz", "delta.feature.timestampNtz", "supported")
COLUMN_MAPPING = Feature("columnMapping", "delta.columnMapping.mode", "name")
# for names with characters that Parquet does not allow, and for RENAME and DROP, which write no data file with it.
# Alone it is the protocol's reader version 2, and ``DeltaTable.to_pandas`` reads nulls from such a table, without a
# word. With any other feature it is a feature of version 3, and a reader that does not know it refuses
MAPPED_NAMES = (COLUMN_MAPPING, TIMESTAMP_NTZ)
# for a MERGE of random keys into a large table: 400 times less is written than if it copied files
DELETION_VECTORS = Feature("deletionVectors", "delta.enableDeletionVectors", "true")


def features_of_columns(columns: Sequence[LakeColumn]) -> tuple[Feature, ...]:
    """The features that these columns need."""
    return features_of((column.name, column.lake_type.sql) for column in columns)


def features_of(columns: Iterable[tuple[str, str]]) -> tuple[Feature, ...]:
    """The features that columns of these names, and types as Spark prints them, need."""
    pairs = [*columns]
    if any(not _NOT_IN_PARQUET.isdisjoint(name) for name, _ in pairs):
        return MAPPED_NAMES
    return (TIMESTAMP_NTZ,) if any(LakeKind.TIMESTAMP_NTZ.value in sql for _, sql in pairs) else ()


def new_properties(path: str, features: Sequence[Feature]) -> dict[str, str]:
    """The properties with which Spark creates a table at ``path`` that has these features."""
    return of_new_tables(path) | {feature.key: feature.value for feature in features}


def of_new_tables(path: str) -> dict[str, str]:
    """The properties with which a table at ``path`` is created."""
    return TRANSACTIONS_STAY | short_log(path)


def short_log(path: str) -> dict[str, str]:
    """When Spark writes checkpoints of the table at ``path``, if nobody has set that. By default it does so after ten
    commits, and reads each of them twice then. That takes many requests to an object store, but on a disk little time,
    while each checkpoint takes as long as half a sync."""
    return {CHECKPOINT_PROPERTY: str(CHECKPOINT_INTERVAL)} if store_of(path) is not None else {}
