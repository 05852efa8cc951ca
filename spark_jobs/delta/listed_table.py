"""A Delta table as one listing of its folder and its log tell it: what is part of it, and what else lies there.

That takes one request for the listing, one for the newest checkpoint, and one for each commit since. ``deltalake``
reads each of them twice, and says nothing of the files that were removed from a table.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#action-reconciliation
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from spark_jobs.delta.commit import commit_name, commit_of, time_now
from spark_jobs.delta.files import LakeFile, files_below
from spark_jobs.delta.history import History
from spark_jobs.delta.own_commit import Action, add_action, commit_info, remove_action, write_commit
from spark_jobs.delta.table import overtaken, table_gone
from spark_jobs.delta.transaction_log import note_version
from spark_jobs.delta.whole_files import content_of, delete_files
from spark_jobs.storage import Location

_OF_LOG = re.compile(r"_delta_log/\.?(\d{20})\.(json|crc|checkpoint(?:\.\d+\.\d+)?\.parquet)(\.crc)?")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# how writers of Delta tables name data files and deletion vectors, and Hadoop the checksums beside them
OF_DELTA = re.compile(rf"(.*/)?[^/]*{_UUID}[^/]*\.(parquet|bin|crc)")
# Hadoop writes it beside a file in a local folder
_CHECKSUM = re.compile(r"(.*/)?\.([^/]+)\.crc")
# of each kind of action, in the order in which those of one commit count: the file that a deletion vector is added to
# is removed by the same commit
_READ = {
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
    "metaData": (
        *("id", "name", "description", "format", "schemaString", "partitionColumns", "configuration", "createdTime"),
    ),
    "remove": ("path", "deletionTimestamp", "deletionVector"),
    "add": ("path", "size", "modificationTime", "dataChange", "stats", "deletionVector"),
}
_Told = Iterator[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class ListedTable:
    """The table at ``path``, at ``version``, read from the ``checkpoint`` of that version or an earlier one, -1 if it
    has none.

    ``files``: what adds each file of it, and ``removed``: what has removed files that only older versions have, by the
    files' names in the folder. Expired removals may be missing. ``listing``: everything in the folder.
    """

    path: Location
    version: int
    checkpoint: int
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    removed: Mapping[str, Mapping[str, Any]]
    listing: tuple[LakeFile, ...]

    @classmethod
    def read(cls, path: Location, *, log_alone: bool = False) -> ListedTable | None:
        """The newest version; None if there is no Delta table. ``log_alone``: nothing else of the folder is listed.

        Raises LakeError if the folder cannot be listed, OSError if its log cannot be read, and ValueError if that is
        damaged, or needs more than commits and a checkpoint in one file."""
        listing = files_below(path / "_delta_log" if log_alone else path)
        if log_alone:
            listing = tuple(replace(file, name=f"_delta_log/{file.name}") for file in listing)
        base = max(_versions(listing, "checkpoint.parquet"), default=-1)
        version = max([base, *_versions(listing, "json")])
        if version < 0:
            return None
        actions = (_of_checkpoint(path, base), *(_of_commit(path, each) for each in range(base + 1, version + 1)))
        return cls(path, version, base, {}, {}, {}, {}, listing)._after(chain.from_iterable(actions))

    @classmethod
    def required(cls, path: Location) -> ListedTable:
        """Raises as ``read`` does, and LakeError if there is no Delta table."""
        table = cls.read(path)
        if table is None:
            raise table_gone(path)
        return table

    @cached_property
    def configuration(self) -> dict[str, str]:
        return dict(self.metadata["configuration"])

    @property
    def has_vectors(self) -> bool:
        """Whether a deletion vector deletes rows of a file, of this version or of an older one."""
        return any(action.get("deletionVector") for action in (*self.files.values(), *self.removed.values()))

    @property
    def strays(self) -> tuple[LakeFile, ...]:
        """The data files of the listing that are not part of this version."""
        files = (file for file in self.listing if file.name.endswith(".parquet") and _is_data(file.name))
        return tuple(file for file in files if file.name not in self.files)

    def newest(self) -> ListedTable:
        """The table after the commits that were made since; ``listing`` stays. Raises OSError and ValueError."""
        table = self
        with suppress(FileNotFoundError):
            while True:
                actions = _of_commit(self.path, table.version + 1)
                table = replace(table._after(actions), version=table.version + 1)
        return table

    def with_properties(self, settings: Mapping[str, str]) -> ListedTable:
        """The table with these properties. Raises LakeError; OvertakenError if another writer has committed since the
        table was read."""
        properties = {**self.configuration, **settings}
        if properties == self.configuration:
            return self
        information = commit_info("SET TBLPROPERTIES", {"properties": json.dumps(dict(settings))})
        return self._committed(information, {"metaData": {**self.metadata, "configuration": properties}})

    def with_added(self, new: Sequence[AddAction], user_metadata: str) -> ListedTable:
        """The table with the files ``new``, too. Raises as ``with_replaced`` does."""
        parameters = {"mode": "Append", "partitionBy": "[]"}
        return self._committed(commit_info("WRITE", parameters, userMetadata=user_metadata), *map(add_action, new))

    def with_replaced(self, old: Sequence[str], new: Sequence[AddAction], *, is_loss: bool = False) -> ListedTable:
        """The table with the files ``new``, which hold the rows of ``old``, or if ``is_loss`` only some of them. Raises
        LakeError; OvertakenError if another writer has committed since the table was read: the new files are left, as a
        storage may have made the commit and lost its answer."""
        metrics = {"numRemovedFiles": str(len(old)), "numAddedFiles": str(len(new))}
        information = commit_info("DELETE" if is_loss else "OPTIMIZE", {"predicate": "[]"}, operationMetrics=metrics)
        removals = (_removal(self.files[name], is_loss=is_loss) for name in old)
        return self._committed(information, *removals, *map(add_action, new))

    def _committed(self, *actions: Action) -> ListedTable:
        if not write_commit(self.path, self.version + 1, actions):
            raise overtaken(self.path)
        note_version(self.path, self.version + 1)
        pairs = ((kind, action) for each in actions for kind, action in each.items())
        return replace(self._after(pairs), version=self.version + 1)

    def remove_expired(self, history: History) -> int:
        """Remove from the storage what ``history`` does not need: data files that no version of that time has, and of
        the log what no version of that time is read from. Returns the number of data files. Raises LakeError.

        A file that no version names may be about to be committed, so a young one stays. So does one whose name, or
        folder's name, begins with ``_`` or ``.``: that is not of data.
        """
        since = _ago(history.files)
        kept = {name for name, action in self.removed.items() if (action.get("deletionTimestamp") or 0) >= since}
        kept.update(self.files)
        data = [
            file.name
            for file in self.listing
            if file.modified < since and _is_data(file.name) and _without_checksum(file.name) not in kept
        ]
        base = self._oldest_needed(_ago(history.log))
        log = [file.name for file in self.listing if (match := _OF_LOG.fullmatch(file.name)) and int(match[1]) < base]
        if data or log:
            delete_files(self.path, [*data, *log])
        return sum(_without_checksum(name) == name for name in data)

    def remove_all_but(self, newest: ListedTable, since: int) -> int:
        """Remove from the storage what this listing shows of files that writers of Delta tables have made, except those
        of the version ``newest``, and commits from version ``since`` on: no older one can be read after that. It must
        be certain that no writer that has begun before the listing commits any more. Returns the number of data files.
        Raises LakeError."""
        kept = {*newest.files}
        data = [
            file.name
            for file in self.listing
            if not file.name.startswith("_delta_log/")
            and OF_DELTA.fullmatch(file.name)
            and _without_checksum(file.name) not in kept
        ]
        log = [file.name for file in self.listing if (match := _OF_LOG.fullmatch(file.name)) and int(match[1]) < since]
        delete_files(self.path, [*data, *log])
        return sum(_without_checksum(name) == name for name in data)

    def _oldest_needed(self, since: int) -> int:
        """The newest checkpoint from which all versions can be read that were the newest one since then; 0 if there is
        none."""
        younger = _versions([file for file in self.listing if file.modified >= since], "json")
        first = min(younger, default=self.version + 1) - 1
        return max((each for each in _versions(self.listing, "checkpoint.parquet") if each <= first), default=0)

    def _after(self, actions: Iterable[tuple[str, Mapping[str, Any]]]) -> ListedTable:
        """After these actions, each with its kind."""
        files, removed = {**self.files}, {**self.removed}
        last: dict[str, Mapping[str, Any]] = {"protocol": self.protocol, "metaData": self.metadata}
        for kind, action in actions:
            name = unquote(action.get("path", ""))
            if kind == "add":
                removed.pop(name, None)
                files[name] = action
            elif kind == "remove":
                files.pop(name, None)
                removed[name] = action
            else:
                last[kind] = action
        return replace(self, protocol=last["protocol"], metadata=last["metaData"], files=files, removed=removed)


def _ago(age: timedelta) -> int:
    return time_now() - int(age.total_seconds() * 1000)


def _versions(listing: Iterable[LakeFile], kind: str) -> list[int]:
    matches = (_OF_LOG.fullmatch(file.name) for file in listing)
    return [int(match[1]) for match in matches if match and match[2] == kind and not match[3]]


def _removal(file: Mapping[str, Any], *, is_loss: bool) -> Action:
    return remove_action(RemoveAction(file["path"], is_loss, time_now(), file["size"], {}))


def _of_commit(path: Location, version: int) -> _Told:
    """Raises OSError and ValueError."""
    folder, name = path / "_delta_log", commit_name(version)
    commit = commit_of(folder / name, version, content_of(folder, name).to_pybytes())
    return ((kind, action) for kind in _READ for action in commit.actions(kind))


def _of_checkpoint(path: Location, version: int) -> _Told:
    """Nothing for the version -1."""
    if version < 0:
        return
    content = content_of(path / "_delta_log", f"{version:020}.checkpoint.parquet")
    columns = [f"{kind}.{name}" for kind, names in _READ.items() for name in names]
    rows = pq.ParquetFile(pa.BufferReader(content)).read(columns)
    for kind in _READ:
        for action in rows.column(kind).drop_null().to_pylist():
            yield kind, _as_json(action) if kind == "metaData" else action


def _as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """As a commit has it: Parquet has lists of pairs for mappings, and null for what is missing."""
    known = {name: value for name, value in metadata.items() if value is not None}
    options = dict(known["format"].get("options") or {})
    configuration = dict(known.get("configuration") or {})
    return known | {"format": {**known["format"], "options": options}, "configuration": configuration}


def _is_data(name: str) -> bool:
    return not any(part.startswith(("_", ".")) for part in _without_checksum(name).split("/"))


def _without_checksum(name: str) -> str:
    """The name of the file that this one belongs to."""
    match = _CHECKSUM.fullmatch(name)
    return f"{match[1] or ''}{match[2]}" if match else name
