"""``{lake.path}/_unrepresentable``: one row for each value that was stored otherwise than the source has it.

Two Delta tables have no common transaction. So a commit to a table names the file with the records of its misfits,
which was written before, and carries their counts; the file is added to ``_unrepresentable`` afterwards, in a commit
with the number of the table's. If a process dies in between, the next commit to the table, or ``maintain``, adds it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.delta.append import commit_files
from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINT_PROPERTY
from spark_jobs.delta.commit import Transaction, time_now
from spark_jobs.delta.counted_files import CountedFiles
from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.delta.files import WRITABLE, create_local_folder, files_below, table_filesystem
from spark_jobs.delta.history import FOR_READERS, History
from spark_jobs.delta.table import commit_errors, open_table, table_errors
from spark_jobs.delta.upkeep import CountedTable, Expiry, Upkeep, keep_small
from spark_jobs.delta.written_tables import TableToWrite, commit_properties, keep_written, open_to_write
from spark_jobs.errors import LakeError, OvertakenError
from spark_jobs.lake.generation import Generation
from spark_jobs.object_stores import storage_options
from spark_jobs.options.folder_template import UNREPRESENTABLE_FOLDER
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.retries import again_when_concurrent
from spark_jobs.schema.misfits import RECORDS_SCHEMA, Misfits

_log = logging.getLogger(__name__)

# table        as in SQL
# generation   that the table had, as its commits name it: a new snapshot begins another
# commit       the number of the table's commit
# recorded_at  UTC
UNREPRESENTABLE_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        *RECORDS_SCHEMA,
        pa.field("generation", pa.string(), nullable=False),
        pa.field("commit", pa.int64(), nullable=False),
        pa.field("recorded_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
UNREPRESENTABLE_LAYOUT = Layout(
    UNREPRESENTABLE_SCHEMA, statistics=("table", "lsn", "recorded_at"), unique=(), file_bytes=1 << 40
)
_HISTORY = History(timedelta(days=7), FOR_READERS.log)  # also for a file that a killed process has not added yet
_CONFIGURATION = {CHECKPOINT_PROPERTY: str(CHECKPOINT_INTERVAL)}


@dataclass(frozen=True)
class RecordsFile:
    """The file with the records of a table's commit number ``commit``: a data file of ``_unrepresentable``, once it is
    added."""

    path: str
    size: int
    stats: str
    commit: int


@dataclass(frozen=True)
class Unrepresentable:
    """What each commit to a table repeats: ``counts``, by column, of the values that were stored otherwise than the
    source had them, since the table's snapshot. ``file``: of the last commit with such values; None once the next one
    has made sure that it was added."""

    counts: Mapping[str, int] = field(default_factory=dict)
    file: RecordsFile | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any] | None) -> Unrepresentable:
        """``fields``: as ``asdict`` gives them; None, as older versions have it, if there are no such values."""
        if fields is None:
            return ALL_FITTED
        return cls(fields["counts"], None if fields["file"] is None else RecordsFile(**fields["file"]))

    def __bool__(self) -> bool:
        return bool(self.counts)

    @property
    def words(self) -> str:
        """What is to be said of them."""
        by_column = ", ".join(f"{count:,} in {name}" for name, count in self.counts.items())
        total = sum(self.counts.values())
        stored = "1 value was" if total == 1 else f"{total:,} values were"
        return f"since its snapshot, {stored} stored otherwise: {by_column}"

    def and_(self, misfits: Misfits, file: RecordsFile | None) -> Unrepresentable:
        return Unrepresentable(dict(Counter(self.counts) + Counter(misfits.counts)), file)

    @property
    def fields(self) -> dict[str, object] | None:
        """What ``of`` reads."""
        return asdict(self) if self.counts else None


ALL_FITTED = Unrepresentable()


@dataclass(frozen=True)
class RecordsOf:
    """The records of one table. ``stream``: the prefix of its slot's transaction identifiers."""

    lake: Lake
    name: QualifiedName
    stream: str
    generation: Generation

    @property
    def app_id(self) -> str:
        """Commit numbers begin again if the table is lost: then it gets a new snapshot."""
        return f"{self.stream}unrepresentable:{self.generation.snapshot_lsn.key}:{self.name}"

    def written(self, misfits: Misfits, commit: int) -> RecordsFile:
        """The records in a file that is not added yet. Raises LakeError."""
        path, rows = self.lake.unrepresentable, misfits.records
        create_local_folder(path)
        files = DataFiles(path, UNREPRESENTABLE_LAYOUT)
        now = pa.scalar(time_now() * 1000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        before = [pa.repeat(str(self.name), rows.num_rows), *rows.columns]
        after = [pa.repeat(str(self.generation), rows.num_rows), pa.repeat(commit, rows.num_rows)]
        whole = pa.table([*before, *after, pa.repeat(now, rows.num_rows)], schema=UNREPRESENTABLE_SCHEMA)
        files.write_all(whole.combine_chunks().to_batches())
        (action,) = files.actions
        return RecordsFile(action.path, action.size, action.stats, commit)

    def add(self, file: RecordsFile | None) -> None:
        """Make the file a part of ``_unrepresentable``, unless it is. Raises LakeError and OvertakenError."""
        if file is not None:
            _add(self, file)


@again_when_concurrent(lambda error: isinstance(error, OvertakenError))
def _add(records: RecordsOf, file: RecordsFile) -> None:
    """Records of other tables are added at the same time."""
    path = records.lake.unrepresentable
    opened = open_to_write(path, str(path)) or _created(records.lake)
    with table_errors(f"{path} cannot be read"):
        if (opened.log.transaction_version(records.app_id) or 0) >= file.commit:
            return
        if table_filesystem(path).get_file_info(file.path).type != fs.FileType.File:
            _log.warning("%s: the records of commit %s are gone", records.name, file.commit)
            return
    action = AddAction(file.path, file.size, {}, time_now(), True, file.stats)
    commit = commit_properties(Transaction(records.app_id, file.commit))
    with commit_errors(path):
        commit_files(opened.table, [action], commit)
    keep_written(opened, commit)


def records_table(lake: Lake) -> CountedTable | None:
    """None if there are no records. Its rows have no common number. Raises LakeError."""
    path = lake.unrepresentable
    if open_table(path, str(path)) is None:
        with table_errors(f"{path} cannot be read"):
            if not files_below(path):
                return None
        _created(lake)  # a process was killed between its first records and the table
    return CountedTable(CountedFiles(path, "commit", UNREPRESENTABLE_SCHEMA), UNREPRESENTABLE_LAYOUT)


def keep_records_small(lake: Lake, age: timedelta) -> Upkeep | None:
    """See ``keep_small``. None if there is no table. Raises LakeError; OvertakenError if another process does the
    same."""
    table = records_table(lake)
    return None if table is None else keep_small(table, _CONFIGURATION, Expiry(age), _HISTORY)


def _created(lake: Lake) -> TableToWrite:
    path = lake.unrepresentable
    # another process may create it at the same time
    with table_errors(f"{path} cannot be created", hint=WRITABLE), suppress(CommitFailedError):
        DeltaTable.create(
            path,
            UNREPRESENTABLE_SCHEMA,
            mode="ignore",
            configuration=_CONFIGURATION,
            name=UNREPRESENTABLE_FOLDER,
            description="values that were stored otherwise than the source has them",
            storage_options=storage_options(path),
        )
    opened = open_to_write(path, str(path))
    if opened is None:
        raise LakeError(f"{path} cannot be created", hint=WRITABLE)
    return opened
