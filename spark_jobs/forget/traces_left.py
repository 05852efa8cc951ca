"""``postgres-cdc verify --erased``: searches every file of the lake, whether or not a table has it, for traces of rows
and for any text. It reads files as they are: what a deletion vector hides, and what only older versions have, counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.configuration import Pipeline
from spark_jobs.delta.files import files_below, lake_errors
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.table import table_errors
from spark_jobs.delta.upkeep import Chosen
from spark_jobs.delta.whole_files import content_of
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.forget.forget_records import of_rows
from spark_jobs.forget.logged_traces import logged_traces
from spark_jobs.forget.row_keys import RowKeys, matches, row_keys
from spark_jobs.options.folder_template import UNREPRESENTABLE_FOLDER
from spark_jobs.postgres.connection import connected
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.at_source import resolved
from spark_jobs.writers.delta_fields import PHYSICAL

# Spark keeps so many characters of a text in statistics
_STATISTICS_CHARACTERS = 32
_LOG = "_delta_log/"


@dataclass(frozen=True)
class TraceFound:
    """``file``: its path below ``lake.path``. ``where``: the column in it, or what else of it holds the trace."""

    file: str
    where: str


@dataclass(frozen=True)
class ErasureReport:
    """What was found in so many ``files``: all that lie in ``lake``. Neither keys nor texts are in it."""

    lake: str
    files: int
    traces: tuple[TraceFound, ...]
    seconds: float

    @property
    def errors(self) -> tuple[CdcError, ...]:
        if not self.traces:
            return ()
        holding = len({trace.file for trace in self.traces})
        return (
            LakeError(f"{holding:,} of {self.files:,} files in {self.lake} have traces", hint="`postgres-cdc forget`"),
        )


def find_traces(
    pipeline: Pipeline,
    name: QualifiedName | None,
    keys: Sequence[str],
    texts: Sequence[str],
    *,
    progress: Progress = silent,
) -> ErasureReport:
    """Search for rows of the table ``name`` with these ``keys``, in its files and in the change log, and for ``texts``
    as a part of any value, file or name. Memory: the largest file, decoded a part at a time. Raises CdcError."""
    began, pipeline = time.monotonic(), resolved(pipeline)
    search_texts = [_TextSearch(text) for text in texts]
    searches = _Searches([each.in_bytes for each in search_texts], [each.in_rows for each in search_texts])
    if name is not None and keys:
        relation = pipeline.relation(name)
        with connected(pipeline.source.dsn) as source:
            keys_of_rows = row_keys(source, pipeline, relation, keys)
        names = [table.name for table in pipeline.tables_of(relation)]
        of_tables = [_TableSearch.of(pipeline, each, keys_of_rows) for each in names]
        searches.of_bytes.extend(each.in_bytes for each in of_tables)
        searches.of_rows.extend(each.in_rows for each in of_tables)
        logged = logged_traces(pipeline.lake, keys_of_rows, sys.maxsize)
        searches.of_rows.append(_chosen_in("change_log", logged.among, "data"))
        searches.of_rows.append(_chosen_in(UNREPRESENTABLE_FOLDER, of_rows(names, keys_of_rows), "key"))
    files = files_below(pipeline.lake.root)
    traces: list[TraceFound] = []
    for number, file in enumerate(files):
        progress(Step("search", file.name, number, len(files), "files"))
        with lake_errors(f"{pipeline.lake.root} cannot be read"):
            content = content_of(pipeline.lake.root, file.name)
        traces += (TraceFound(file.name, where) for where in dict.fromkeys(_in_file(file.name, content, searches)))
    return ErasureReport(pipeline.lake.path, len(files), tuple(traces), time.monotonic() - began)


@dataclass(frozen=True)
class _Searches:
    """Each gets a file's name below the lake, and its content or rows of it, and tells where in it something is."""

    of_bytes: list[Callable[[str, bytes], Iterator[str]]]
    of_rows: list[Callable[[str, pa.RecordBatch], Iterator[str]]]


def _in_file(name: str, content: pa.Buffer, searches: _Searches) -> Iterator[str]:
    for in_bytes in searches.of_bytes:
        yield from in_bytes(name, content.to_pybytes())
    if not name.endswith(".parquet"):
        return
    try:
        for rows in pq.ParquetFile(pa.BufferReader(content)).iter_batches():
            for in_rows in searches.of_rows:
                yield from in_rows(name, rows)
    except (pa.ArrowException, OSError):
        yield "it cannot be read"


@dataclass(frozen=True)
class _TextSearch:
    text: str

    def in_bytes(self, name: str, content: bytes) -> Iterator[str]:
        if self.text in name:
            yield "its name"
        in_json = (json.dumps(self.text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
        if any(form.encode() in content for form in {self.text, *in_json}):
            yield "its bytes"

    def in_rows(self, _: str, rows: pa.RecordBatch) -> Iterator[str]:
        for column, values in _leaves(rows):
            is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
            is_bytes = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
            if is_text or is_bytes:
                holds = pc.match_substring(values, self.text.encode() if is_bytes else self.text)
            elif pa.types.is_integer(values.type) or pa.types.is_decimal(values.type) or pa.types.is_date(values.type):
                holds = pc.equal(values.cast(pa.string()), self.text)
            else:
                continue
            if pc.any(holds).as_py():
                yield column


def _leaves(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    """The columns without structure, by their paths."""
    waiting = [*zip(rows.schema.names, rows.columns, strict=True)]
    while waiting:
        name, values = waiting.pop()
        if pa.types.is_struct(values.type):
            waiting += ((f"{name}.{field.name}", pc.struct_field(values, i)) for i, field in enumerate(values.type))
        elif pa.types.is_map(values.type):
            waiting += ((f"{name}.key", values.keys), (f"{name}.value", values.items))
        elif pa.types.is_nested(values.type):
            waiting.append((name, values.flatten()))
        else:
            yield name, values


def _chosen_in(folder: str, chosen: Chosen, where: str) -> Callable[[str, pa.RecordBatch], Iterator[str]]:
    def in_rows(name: str, rows: pa.RecordBatch) -> Iterator[str]:
        if name.startswith(f"{folder}/") and _LOG not in name and pc.any(chosen(rows)).as_py():
            yield where

    return in_rows


@dataclass(frozen=True)
class _TableSearch:
    """``folder``: the table's, below the lake. ``physical``: the names of the key's columns in its files, in order."""

    keys: RowKeys
    folder: str
    physical: tuple[str, ...]

    @classmethod
    def of(cls, pipeline: Pipeline, name: QualifiedName, keys: RowKeys) -> _TableSearch:
        path = pipeline.lake.table(name)
        with table_errors(f"{path} cannot be read"):
            table = ListedTable.read(path, log_alone=True)
        fields = json.loads(table.metadata["schemaString"])["fields"] if table is not None else ()
        names = {field["name"]: field["metadata"].get(PHYSICAL, field["name"]) for field in fields}
        physical = tuple(names.get(column, column) for column in keys.names)
        return cls(keys, path.removeprefix(f"{pipeline.lake.root}/"), physical)

    def in_rows(self, name: str, rows: pa.RecordBatch) -> Iterator[str]:
        if not name.startswith(f"{self.folder}/"):
            return
        if _LOG in name:
            yield from self._in_statistics(_checkpointed(rows))
        elif not {*self.physical} <= {*rows.schema.names}:
            yield f"unknown: it has no column {', '.join(self.keys.names)}"
        elif pc.any(self._matches(rows)).as_py():
            yield ", ".join(self.keys.names)

    def in_bytes(self, name: str, content: bytes) -> Iterator[str]:
        if name.startswith(f"{self.folder}/{_LOG}") and name.endswith(".json"):
            actions = (json.loads(line) for line in content.splitlines() if line.startswith(b"{"))
            files = (action.get(kind) or {} for action in actions for kind in ("add", "remove"))
            yield from self._in_statistics(json.loads(each["stats"]) for each in files if each.get("stats"))

    @cached_property
    def _values(self) -> pa.Table:
        return self.keys.values(self.keys.in_lake)

    def _matches(self, rows: pa.RecordBatch) -> pa.Array:
        columns = zip(self._values.column_names, self.physical, strict=True)
        return matches({name: rows.column(physical) for name, physical in columns}, self._values)

    def _in_statistics(self, stats: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        values = [[str(value) for value in row.values()] for row in self._values.to_pylist()]
        for statistics in stats:
            ends = [statistics.get(kind) or {} for kind in ("minValues", "maxValues")]
            for row in values:
                if all(
                    any(_is_end(end.get(column), value) for end in ends)
                    for column, value in zip(self.physical, row, strict=True)
                ):
                    yield "statistics of " + ", ".join(self.keys.names)


def _checkpointed(rows: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    """The statistics that a checkpoint holds as JSON."""
    for kind in ("add", "remove"):
        if kind in rows.schema.names and "stats" in {field.name for field in rows.schema.field(kind).type}:
            stats = pc.struct_field(rows.column(kind), "stats").drop_null().to_pylist()
            yield from map(json.loads, stats)


def _is_end(statistic: object, value: str) -> bool:
    """Whether a statistic is this value, or begins like it where it is cut off."""
    text = str(statistic)
    cut = text[:_STATISTICS_CHARACTERS]
    return text == value or (len(cut) == _STATISTICS_CHARACTERS and value.startswith(cut))
