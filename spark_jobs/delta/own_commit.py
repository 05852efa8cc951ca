"""A commit that we write ourselves, as its file in ``_delta_log``: one request, which the storage refuses if there is
a commit of that version. ``deltalake`` would first read all that the table's log says, and creates no tables with
column mapping.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

from deltalake.transaction import AddAction, RemoveAction

from spark_jobs.delta.commit import Transaction, commit_name, time_now
from spark_jobs.delta.whole_files import create_file
from spark_jobs.storage import Location

# what the oldest protocol that is written today has anyway
_LEGACY_FEATURES = ("appendOnly", "invariants")
# by its kind, such as ``add``
Action: TypeAlias = Mapping[str, Mapping[str, Any]]


def write_commit(path: Location, version: int, actions: Iterable[Action]) -> bool:
    """Commit ``actions`` to the table at ``path``. False if it has a commit of that version. Raises LakeError if the
    storage refuses the write."""
    lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    return create_file(path / "_delta_log", commit_name(version), lines.encode())


def commit_info(operation: str, parameters: Mapping[str, str], **others: object) -> Action:
    """What each commit begins with: what was done, and by whom."""
    return {
        "commitInfo": {
            "timestamp": time_now(),
            "operation": operation,
            "operationParameters": dict(parameters),
            "isBlindAppend": False,
            "engineInfo": "dagster-postgres-cdc",
            **others,
        }
    }


def add_action(file: AddAction) -> Action:
    return {
        "add": {
            "path": file.path,
            "partitionValues": dict(file.partition_values),
            "size": file.size,
            "modificationTime": file.modification_time,
            "dataChange": file.data_change,
            "stats": file.stats,
        }
    }


def remove_action(file: RemoveAction) -> Action:
    """The file has no deletion vector."""
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": file.deletion_timestamp,
            "dataChange": file.data_change,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": file.size,
        }
    }


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
    """Create the table at ``path`` with its first rows, in one commit: with these fields (as the protocol's schema
    serialisation has them) and files.

    False if somebody else has created it. ``features``: those that its readers have to know. Raises LakeError if the
    storage refuses the write.
    """
    now = time_now()
    actions = (
        _first_commit_info(files, user_metadata, rows),
        {"protocol": _protocol(features)},
        {"metaData": _meta_data(now, fields, configuration, description)},
        {"txn": {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": now}},
        *map(add_action, files),
    )
    return write_commit(path, 0, actions)


def _first_commit_info(files: Sequence[AddAction], user_metadata: str, rows: int) -> Action:
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
