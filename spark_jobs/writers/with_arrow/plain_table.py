"""A table whose folder holds nothing but files of rows: this process can compact and clean it up, without Spark.

Its columns have their own names in the files, and it has neither partitions nor features of Delta that ask more of a
writer. Deletion vectors are files that only the rows' files name, so a table that has any is Spark's.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema
from deltalake.table import ProtocolVersions

from spark_jobs.delta.commit import time_now
from spark_jobs.delta.data_files import DataFiles
from spark_jobs.delta.files import storage_error
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import is_ambiguous, table_errors
from spark_jobs.delta.upkeep import Chosen
from spark_jobs.errors import OvertakenError
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import sql_type
from spark_jobs.writers.table_features import COLUMN_MAPPING
from spark_jobs.writers.with_arrow.file_layout import FILE_BYTES, layout_of
from spark_jobs.writers.with_arrow.opened_table import ELSEWHERE, FEATURES, features_of_protocol
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_file

_log = logging.getLogger(__name__)

# what adds them to the table, oldest first
SmallFiles: TypeAlias = Sequence[Mapping[str, Any]]

_SMALL_BYTES = FILE_BYTES // 2


def plain_table(path: Location, *, log_alone: bool = False) -> ListedTable | None:
    """The newest version of the table at ``path``; None if it is not plain, or missing, or damaged: then Spark reports
    what is wrong. ``log_alone``: nothing else of the folder is listed. Raises LakeError if the storage fails."""
    if is_ambiguous(path):
        return None
    try:
        table = ListedTable.read(path, log_alone=log_alone)
        return table if table is not None and _is_plain(table) else None
    except (ValueError, KeyError, FileNotFoundError, pa.ArrowException) as error:
        # a commit is missing if the newest checkpoint has several parts: only Spark writes such
        _log.info("%s is left to Spark: %s", path, error)
        return None
    except OSError as error:
        raise storage_error(f"{path} cannot be read", str(error)) from None


def small_files(table: ListedTable) -> SmallFiles:
    """Those files of the table that are to be put together; none if there is just one."""
    small = [file for file in table.files.values() if file["size"] < _SMALL_BYTES]
    return sorted(small, key=lambda file: int(file["modificationTime"])) if len(small) > 1 else ()


def has_known_columns(table: ListedTable) -> bool:
    """Whether no column is a struct or a map: for those Arrow may write other files than Spark."""
    return all(sql_type(field["type"]) for field in json.loads(table.metadata["schemaString"])["fields"])


def compact_smallest(path: Location, most: int) -> None:
    """Put the smallest files of a plain table together, ``most`` bytes in all. Others are left to ``maintain``, and so
    are all if somebody commits at the same time. Raises LakeError."""
    table = plain_table(path, log_alone=True)
    if table is None or not has_known_columns(table):
        return
    sizes = accumulate(sorted(file["size"] for file in small_files(table)))
    count = sum(1 for size in sizes if size <= most)
    smallest = sorted(small_files(table), key=lambda file: int(file["size"]))[:count]
    if count > 1:
        with suppress(OvertakenError):
            compacted(table, smallest)


def compacted(table: ListedTable, small: SmallFiles) -> ListedTable:
    """The table with these files replaced by larger ones. Raises LakeError; OvertakenError if another writer has
    committed since the table was read."""
    schema = pa.schema(Schema.from_json(table.metadata["schemaString"]))
    made = DataFiles(table.path, layout_of(schema), modified=time_now())
    with table_errors(f"{table.path} cannot be compacted"):
        made.write_all(_rows(table.path, small, schema))
    return table.with_replaced([unquote(file["path"]) for file in small], made.actions)


def without_rows(table: ListedTable, columns: Sequence[str], chosen: Chosen) -> tuple[ListedTable, int]:
    """The table without the rows that are ``chosen`` by these ``columns``, and how many they were. Raises LakeError;
    OvertakenError if another writer has committed since the table was read."""
    schema = pa.schema(Schema.from_json(table.metadata["schemaString"]))
    known = pa.schema([schema.field(name) for name in columns])
    with table_errors(f"rows of {table.path} cannot be removed"):
        counts = {
            name: sum(pc.sum(chosen(rows)).as_py() or 0 for rows in _rows(table.path, [file], known))
            for name, file in table.files.items()
        }
        holding = [name for name, count in counts.items() if count]
        if not holding:
            return table, 0
        made = DataFiles(table.path, layout_of(schema), modified=time_now())
        batches = _rows(table.path, [table.files[name] for name in holding], schema)
        made.write_all(rows.filter(pc.invert(chosen(rows))) for rows in batches)
    return table.with_replaced(holding, made.actions, is_loss=True), sum(counts.values())


def _is_plain(table: ListedTable) -> bool:
    protocol = table.protocol
    versions = protocol["minReaderVersion"], protocol["minWriterVersion"]
    features = features_of_protocol(
        ProtocolVersions(*versions, protocol.get("writerFeatures"), protocol.get("readerFeatures"))
    )
    is_known = features <= FEATURES - {COLUMN_MAPPING.name} and not table.metadata["partitionColumns"]
    return is_known and not table.has_vectors and not any(re.match(ELSEWHERE, name) for name in table.files)


def _rows(path: Location, files: SmallFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from rows_of_file(path, unquote(file["path"]), file["size"], schema)
