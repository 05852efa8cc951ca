"""Creates a Delta table with its first rows, in one commit: version 0, written only if the table has none.

``deltalake`` does not create tables with column mapping.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from deltalake.transaction import AddAction

from spark_jobs.delta.commit import Transaction, time_now
from spark_jobs.delta.created_file import create_file
from spark_jobs.storage import Location

_FIRST = "00000000000000000000.json"
# what the oldest protocol that is written today has anyway
_LEGACY_FEATURES = ("appendOnly", "invariants")


def create_table(
    path: Location,
    fields: Sequence[Mapping[str, Any]],
    configuration: Mapping[str, str],
    files: Sequence[AddAction],
    transaction: Transaction,
    *,
    features: Sequence[str],
    user_metadata: str,
    rows: int,
) -> bool:
    """Create the table at ``path`` with these fields (as the protocol's schema serialisation has them) and files.

    False if somebody else has created it. ``features``: those that its readers have to know. Raises LakeError if the
    storage refuses the write.
    """
    now = time_now()
    actions = (
        {"commitInfo": _commit_info(now, files, user_metadata, rows)},
        {"protocol": _protocol(features)},
        {"metaData": _meta_data(now, fields, configuration)},
        {"txn": {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": now}},
        *({"add": _add(file)} for file in files),
    )
    lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    return create_file(path / "_delta_log", _FIRST, lines.encode())


def _commit_info(now: int, files: Sequence[AddAction], user_metadata: str, rows: int) -> dict[str, Any]:
    return {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Overwrite", "partitionBy": "[]"},
        "isBlindAppend": False,
        "operationMetrics": {
            "numFiles": str(len(files)),
            "numOutputRows": str(rows),
            "numOutputBytes": str(sum(file.size for file in files)),
        },
        "engineInfo": "dagster-postgres-cdc",
        "userMetadata": user_metadata,
    }


def _protocol(features: Sequence[str]) -> dict[str, Any]:
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(features),
        "writerFeatures": [*features, *_LEGACY_FEATURES],
    }


def _meta_data(now: int, fields: Sequence[Mapping[str, Any]], configuration: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields)}, separators=(",", ":")),
        "partitionColumns": [],
        "configuration": dict(configuration),
        "createdTime": now,
    }


def _add(file: AddAction) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": file.data_change,
        "stats": file.stats,
    }
