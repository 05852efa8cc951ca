"""A commit that we write ourselves, as its file in ``_delta_log``: one request, which the storage refuses if there is
a commit of that version. ``deltalake`` would first read all that the table's log says.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from deltalake.transaction import AddAction

from spark_jobs.delta.commit import commit_name, time_now
from spark_jobs.delta.whole_files import create_file
from spark_jobs.storage import Location

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
