"""Creates a Delta table with its first rows, in one commit: version 0, written only if the table has none.

``deltalake`` does not create tables with column mapping.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from deltalake.transaction import AddAction

from spark_jobs.delta.commit import Transaction, time_now
from spark_jobs.delta.own_commit import Action, add_action, commit_info, write_commit
from spark_jobs.storage import Location

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
    description: str = "",
) -> bool:
    """Create the table at ``path`` with these fields (as the protocol's schema serialisation has them) and files.

    False if somebody else has created it. ``features``: those that its readers have to know. Raises LakeError if the
    storage refuses the write.
    """
    now = time_now()
    actions = (
        _commit_info(files, user_metadata, rows),
        {"protocol": _protocol(features)},
        {"metaData": _meta_data(now, fields, configuration, description)},
        {"txn": {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": now}},
        *map(add_action, files),
    )
    return write_commit(path, 0, actions)


def _commit_info(files: Sequence[AddAction], user_metadata: str, rows: int) -> Action:
    metrics = {
        "numFiles": str(len(files)),
        "numOutputRows": str(rows),
        "numOutputBytes": str(sum(file.size for file in files)),
    }
    parameters = {"mode": "Overwrite", "partitionBy": "[]"}
    return commit_info("WRITE", parameters, operationMetrics=metrics, userMetadata=user_metadata)


def _protocol(features: Sequence[str]) -> dict[str, Any]:
    if not features:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(features),
        "writerFeatures": [*features, *_LEGACY_FEATURES],
    }


def _meta_data(
    now: int, fields: Sequence[Mapping[str, Any]], configuration: Mapping[str, str], description: str
) -> dict[str, Any]:
    return {
        "id": str(uuid4()),
        **({"description": description} if description else {}),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields)}, separators=(",", ":")),
        "partitionColumns": [],
        "configuration": dict(configuration),
        "createdTime": now,
    }
