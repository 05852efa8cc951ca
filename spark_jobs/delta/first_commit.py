"""Creates a Delta table with its first rows, in one commit: version 0, written only if the table has none.

``deltalake`` does not create tables with column mapping. The storage clients that it is built on can be asked for the
one thing that matters: of two processes that create a file of one name, the second fails.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
https://developmentseed.org/obstore/latest/api/put/
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import obstore
from deltalake.transaction import AddAction
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from spark_jobs.delta.commit import Transaction, time_now
from spark_jobs.delta.commit_errors import first_line
from spark_jobs.delta.files import lake_filesystem, storage_hint
from spark_jobs.errors import LakeError
from spark_jobs.object_stores import store_of
from spark_jobs.storage import Location

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_FIRST = "00000000000000000000.json"
_READER_FEATURES = ("columnMapping", "deletionVectors", "timestampNtz")
_WRITER_FEATURES = (*_READER_FEATURES, "appendOnly", "invariants")


def create_table(
    path: Location,
    fields: Sequence[Mapping[str, Any]],
    configuration: Mapping[str, str],
    files: Sequence[AddAction],
    transaction: Transaction,
    *,
    user_metadata: str,
    rows: int,
) -> bool:
    """Create the table at ``path`` with these fields (as the protocol's schema serialisation has them) and files.

    False if somebody else has created it. The table may use deletion vectors, column mapping and timestamps without a
    time zone. Raises LakeError if the storage refuses the write.
    """
    now = time_now()
    actions = (
        {"commitInfo": _commit_info(now, files, user_metadata, rows)},
        {"protocol": _protocol()},
        {"metaData": _meta_data(now, fields, configuration)},
        {"txn": {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": now}},
        *({"add": _add(file)} for file in files),
    )
    lines = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    try:
        obstore.put(_log_of(path), _FIRST, lines.encode(), mode="create")
    except AlreadyExistsError:
        return False
    except (BaseError, OSError) as error:
        said = first_line(error)
        raise LakeError(f"{path} cannot be created: {said}", hint=storage_hint(said)) from None
    return True


def _log_of(path: Location) -> ObjectStore:
    folder = path / "_delta_log"
    store = store_of(folder)
    if store is None:
        return LocalStore(lake_filesystem(folder)[1], mkdir=True)
    settings = folder.storage.settings
    options: Any = store.options(settings)
    client: ClientConfig | None = {"allow_http": True} if settings.is_unencrypted else None
    return from_url(store.uri(folder), config=options, client_options=client)


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


def _protocol() -> dict[str, Any]:
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(_READER_FEATURES),
        "writerFeatures": list(_WRITER_FEATURES),
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
