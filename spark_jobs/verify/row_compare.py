"""Compares source and lake value by value, through other code than the code that moved the rows.

The source must be idle. It is read with ADBC's own types (text and decimals as PostgreSQL prints them), the lake with
``deltalake`` or Spark; both become Arrow tables, sorted by the key, and must be equal. A count or a checksum would miss
some differences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_jobs.configuration import Pipeline
from spark_jobs.postgres.bulk_read import bulk_connection, streamed
from spark_jobs.postgres.catalogue import facts_by_name
from spark_jobs.postgres.connection import connected, conninfo
from spark_jobs.postgres.published_tables import PublishedTable, published_tables
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts
from spark_jobs.storage import Location
from spark_jobs.table_mask import TableMask
from spark_jobs.writers.held_rows import held_rows, readable_table
from spark_jobs.writers.merge_sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Comparison:
    """``differing_columns`` is empty if all rows are equal, or if their number differs: their
    values are then not compared."""

    name: QualifiedName
    source_rows: int
    lake_rows: int
    differing_columns: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return self.source_rows == self.lake_rows and not self.differing_columns


def compare(
    spark: SparkSession, pipeline: Pipeline, names: tuple[QualifiedName, ...], *, by_spark: bool = False
) -> tuple[Comparison, ...]:
    """Compare these tables, as far as the publications send them; the source must be idle. Holds both sides of one
    table at a time in memory. ``by_spark``: see ``lake_rows``."""
    source = pipeline.source
    with connected(source.dsn) as connection:
        facts = tuple(
            with_options(fact, pipeline.table(fact.name).options)
            for fact in facts_by_name(connection, names, pipeline.masks)
        )
        published = published_tables(connection, source.publications, names) if source.has_publications else {}
    return tuple(
        _compare(
            _source_rows(pipeline, fact, published.get(fact.name)),
            lake_rows(spark, pipeline.lake.table(fact.name), by_spark=by_spark),
            fact,
        )
        for fact in facts
    )


def _compare(source: pa.Table, lake: pa.Table, facts: RelationFacts) -> Comparison:
    if lake.column_names != source.column_names:
        differing = tuple(sorted(set(lake.column_names) ^ set(source.column_names))) or ("order of columns",)
        return Comparison(facts.name, source.num_rows, lake.num_rows, differing)
    source = source.cast(lake.schema)  # ADBC's large or opaque types; a value that does not fit raises
    differing = ()
    if source.num_rows == lake.num_rows:
        source, lake = _sorted(source, facts), _sorted(lake, facts)
        differing = tuple(name for name in lake.column_names if not _same(source[name], lake[name]))
    return Comparison(facts.name, source.num_rows, lake.num_rows, differing)


def _same(source: pa.ChunkedArray, lake: pa.ChunkedArray) -> bool:
    # to Arrow NaN does not equal NaN, and 0 equals -0
    if pa.types.is_floating(lake.type):
        source, lake = source.cast(pa.string()), lake.cast(pa.string())
    elif pa.types.is_list(lake.type) and pa.types.is_floating(lake.type.value_type):
        source, lake = source.cast(pa.list_(pa.string())), lake.cast(pa.list_(pa.string()))
    return bool(source.equals(lake))


def _sorted(table: pa.Table, facts: RelationFacts) -> pa.Table:
    names = facts.key or table.column_names  # without a key several rows may be equal; their order does not matter
    return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]))


def _source_rows(pipeline: Pipeline, facts: RelationFacts, sent: PublishedTable | None) -> pa.Table:
    columns = sql.SQL(", ").join(_column(column) for column in _followed(facts, sent))
    # ONLY: tables that inherit from this one are tables of their own
    query = (
        sql.SQL("SELECT {} FROM {} {} WHERE {}")
        .format(
            columns,
            sql.SQL("" if facts.leaf_identities else "ONLY"),
            sql.Identifier(facts.nspname, facts.relname),
            sql.SQL((sent.row_filter if sent is not None else "") or "true"),
        )
        .as_string(None)
    )
    documents = [column.attname for column in facts.columns if column.lake_type.kind is LakeKind.VARIANT]
    with bulk_connection(conninfo(pipeline.source.dsn)) as bulk, streamed(bulk, query) as reader:
        rows = _as_documents(reader.read_all(), documents)
        return _masked(rows, facts, pipeline.masks.get(facts.name))


def _masked(rows: pa.Table, facts: RelationFacts, mask: TableMask | None) -> pa.Table:
    """The rows with masked columns hashed, one value at a time."""
    for column in facts.columns:
        if mask is not None and column.masked and column.attname in rows.column_names:
            texts = rows.column(column.attname).to_pylist()
            hashes = [None if text is None else mask.hashed(text.encode()).decode() for text in texts]
            rows = rows.set_column(
                rows.column_names.index(column.attname), column.attname, pa.array(hashes, pa.string())
            )
    return rows


def lake_rows(spark: SparkSession, path: str, *, by_spark: bool = False) -> pa.Table:
    """All rows of the Delta table, with variants as JSON: read by this process if it can, unless ``by_spark``."""
    from pyspark.sql import functions as fn

    if not by_spark and (table := readable_table(Location.of(path))) is not None:
        return held_rows(table)
    rows = spark.read.format("delta").load(path)
    documents = [name for name, kind in rows.dtypes if kind == LakeKind.VARIANT.value]
    for name in documents:
        rows = rows.withColumn(name, fn.to_json(fn.col(quoted(name))))
    return _as_documents(rows.toArrow(), documents)


def _as_documents(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """With JSON texts normalised by the standard library's parser: equal documents get equal texts."""
    for name in names:
        texts = pa.array([text and _document(text) for text in table.column(name).to_pylist()], pa.string())
        table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _document(text: str) -> str:
    def number(digits: str) -> str:
        return f"number {Decimal(digits).normalize(Context(prec=100)):f}"

    return json.dumps(json.loads(text, parse_int=number, parse_float=number), sort_keys=True)


def _followed(facts: RelationFacts, sent: PublishedTable | None) -> tuple[ColumnFacts, ...]:
    if sent is not None:
        return sent.sent_of(facts).columns
    return tuple(column for column in facts.columns if not column.attgenerated)


def _column(column: ColumnFacts) -> sql.Composable:
    """concat() calls the type's output function; a cast to text would drop the padding of char(n). IS DISTINCT FROM
    NULL, because a composite value with a null field is neither IS NULL nor IS NOT NULL."""
    name = sql.Identifier(column.attname)
    if column.chosen_type is not None:
        return _chosen(name, column.chosen_type)
    if column.lake_type.kind in (LakeKind.STRING, LakeKind.DECIMAL):
        return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN concat({0}) END AS {0}").format(name)
    if column.lake_type.kind is LakeKind.BIGINT:  # oid too
        return sql.SQL("{0}::bigint AS {0}").format(name)
    return name


def _chosen(name: sql.Identifier, lake_type: LakeType) -> sql.Composable:
    """The server's own conversion to the chosen type, if that is exact; null otherwise."""
    if lake_type.kind is LakeKind.VARIANT:
        return sql.SQL("{0}::text AS {0}").format(name)
    if lake_type.kind is LakeKind.BINARY:
        return sql.SQL("uuid_send({0}) AS {0}").format(name)
    if lake_type.kind is LakeKind.DECIMAL:
        size = sql.SQL("numeric({}, {})").format(sql.Literal(lake_type.precision), sql.Literal(lake_type.scale))
        fits = sql.SQL("abs({0}) < 10::numeric ^ {1} AND round({0}, {2}) = {0}").format(
            name, sql.Literal(lake_type.precision - lake_type.scale), sql.Literal(lake_type.scale)
        )
        return sql.SQL("CASE WHEN {0} THEN concat({1}::{2}) END AS {1}").format(fits, name, size)
    flat = sql.SQL("{0} = '{{}}' OR array_ndims({0}) = 1 AND array_lower({0}, 1) = 1").format(name)
    assert lake_type.element is not None
    texts = sql.SQL("::text[]") if lake_type.element.kind in (LakeKind.STRING, LakeKind.DECIMAL) else sql.SQL("")
    return sql.SQL("CASE WHEN {0} THEN {1}{2} END AS {1}").format(flat, name, texts)
