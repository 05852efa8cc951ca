"""The tables that a lake holds, as far as the names of its folders tell."""

from __future__ import annotations

from urllib.parse import unquote

from spark_jobs.configuration import Lake
from spark_jobs.delta.removal import entries
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location


def names_in_lake(lake: Lake) -> tuple[QualifiedName, ...]:
    """The names that folders of tables have, whoever wrote them. Raises LakeError if the lake cannot be listed."""
    found = (f"{schema}/{table}" for schema in _folders(lake.tables) for table in _of_schema(lake, schema))
    return tuple(name for folder in found if (name := name_of_folder(folder)) is not None)


def name_of_folder(folder: str) -> QualifiedName | None:
    """The table whose folder below ``tables`` this is; None if we would name no folder so."""
    if folder == MESSAGES_NAME.path:
        return MESSAGES_NAME
    name = QualifiedName(*map(unquote, folder.split("/", 1))) if "/" in folder else None
    return name if name is not None and name.path == folder else None


def _folders(path: Location) -> list[str]:
    return [name for name, file in entries(path).items() if file is None]


def _of_schema(lake: Lake, schema: str) -> list[str]:
    folders = _folders(lake.tables / schema)
    # the messages table is where a schema of this name would be
    return [] if "_delta_log" in folders else folders
