"""The keys of the rows that are to be forgotten: as a user writes them, and as the log and the lake hold them."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import reduce

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from spark_jobs.configuration import Pipeline
from spark_jobs.decode.masked_text import masked_text
from spark_jobs.decode.values import cast_text
from spark_jobs.errors import ConfigurationError, PreconditionError, SchemaChangeError
from spark_jobs.options.table_mask import TableMask
from spark_jobs.postgres.catalogue import relation_facts
from spark_jobs.postgres.connection import Connection, source_errors
from spark_jobs.postgres.source_tables import no_table
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.chosen_types import with_options
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.masked_facts import masked_facts
from spark_jobs.schema.relation_facts import RelationFacts

# a value in the column's type must be the one that was written: a cast to varchar(3) would cut it off. %s of format()
# is the type's own output, which a cast to text is not for character(n)
_AS_PRINTED = "format('%%s', {typed}), {typed} = {whole}"
_TYPES = """
SELECT format_type(%s, %s), format('%%I.%%I', n.nspname, t.typname)
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = %s
"""

_EXACT = Context(prec=100)
# a value has other digits in each of them: 1, 1.00
_NUMBERS = {LakeKind.SMALLINT, LakeKind.INT, LakeKind.BIGINT, LakeKind.DECIMAL}


@dataclass(frozen=True)
class HeldColumn:
    """A column of the key as some files hold it: its ``name`` and type there. ``masked``: they hold hashes."""

    name: str
    lake_type: LakeType
    masked: bool


@dataclass(frozen=True)
class RowKeys:
    """Keys of rows of one table. ``facts``: the table as the source has it now, masked as in the lake. ``texts``: for
    each row what PostgreSQL prints for each column of ``names``. ``mask``: of the table, None without one."""

    facts: RelationFacts
    names: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...] = field(repr=False)
    mask: TableMask | None = None

    @property
    def name(self) -> QualifiedName:
        return self.facts.name

    @property
    def in_lake(self) -> tuple[HeldColumn, ...]:
        """The columns of the table in the lake."""
        columns = {column.attname: column for column in self.facts.columns}
        return tuple(HeldColumn(name, columns[name].lake_type, columns[name].masked) for name in self.names)

    @property
    def attnums(self) -> tuple[int, ...]:
        columns = {column.attname: column.attnum for column in self.facts.columns}
        return tuple(columns[name] for name in self.names)

    def values(self, columns: Sequence[HeldColumn]) -> pa.Table:
        """The keys as files hold them whose key consists of ``columns``, in the order of ``names``; null for a number
        that the type then could not hold. Raises UnrepresentableError; SchemaChangeError if the mask is gone."""
        return pa.table(
            [self._values(place, column) for place, column in enumerate(columns)],
            [column.name for column in columns],
        )

    def _values(self, place: int, column: HeldColumn) -> pa.Array:
        texts = pa.array([row[place] for row in self.texts], pa.string())
        if column.masked:
            if self.mask is None:
                raise SchemaChangeError(f"{self.name}: column {column.name} was masked, and is not any more")
            return masked_text(texts, self.mask)
        now = self.in_lake[place].lake_type
        if column.lake_type == now or not {column.lake_type.kind, now.kind} <= _NUMBERS:
            return cast_text(texts, column.lake_type, name=column.name, table=str(self.name)).values
        return pa.concat_arrays([_as_number(text, column.lake_type.arrow) for text in texts.to_pylist()])


def _as_number(text: str, kind: pa.DataType) -> pa.Array:
    """Null if the type, of integers or decimals, cannot hold it."""
    number = Decimal(text).normalize(_EXACT)
    with suppress(ValueError, OverflowError, pa.ArrowException):
        if number == int(number) or pa.types.is_decimal(kind):
            return pa.array([int(number) if number == int(number) else number], kind)
    return pa.nulls(1, kind)


def matches(side: Mapping[str, pa.Array], values: pa.Table) -> pa.Array:
    """For each row of ``side``, columns by their names, whether its key is one of ``values``."""
    columns = {name: side[name] for name in values.column_names}
    typed = {name: values.column(name).cast(column.type) for name, column in columns.items()}
    hits = (
        reduce(pc.and_, (pc.equal(column, typed[name][row]) for name, column in columns.items()))
        for row in range(values.num_rows)
    )
    return pc.fill_null(reduce(pc.or_kleene, hits), False)


def row_keys(connection: Connection, pipeline: Pipeline, name: QualifiedName, written: Sequence[str]) -> RowKeys:
    """The keys that a user has ``written``, see ``pairs_of``, of rows of the table. Raises ConfigurationError if one is
    no key of it, and PreconditionError for a table without a key."""
    (facts,) = relation_facts(connection, names=[name], keys=pipeline.declared_keys) or (None,)
    if facts is None:
        raise no_table(connection, name)
    if not facts.key:
        raise PreconditionError(
            f"{name} has no key, so nothing tells one row of it from others that are equal",
            hint="declare key: for it in the configuration, or delete the rows as docs/security.md says",
        )
    names = tuple(column.attname for column in facts.columns if column.attname in facts.key)
    pairs = [pairs_of(text, names) for text in written]
    texts = tuple(dict.fromkeys(_printed(connection, facts, names, given) for given in pairs))
    mask = pipeline.masks.get(name)
    return RowKeys(with_options(masked_facts(facts, mask), pipeline.column_options(name)), names, texts, mask)


def pairs_of(text: str, names: Sequence[str]) -> Mapping[str, str]:
    """A key as ``COLUMN=VALUE,...``, one line of CSV: a pair that holds a comma or begins with a quote is quoted.
    Raises ConfigurationError, which does not repeat the value."""
    expected = f"expected {key_text(dict.fromkeys(names, '…'))}; in quotes, as in CSV, where it holds a comma"
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        lines = []
    fields = lines[0] if len(lines) == 1 else []
    pairs: dict[str, str] = {}
    for each in fields:
        column = max((name for name in names if each.startswith(f"{name}=")), key=len, default=None)
        if column is None or column in pairs:
            break
        pairs[column] = each[len(column) + 1 :]
    if len(pairs) != len(fields) or pairs.keys() != set(names):
        raise ConfigurationError(f"--key does not name the columns of the key: {', '.join(names)}", hint=expected)
    return pairs


def key_text(pairs: Mapping[str, str]) -> str:
    """The inverse of ``pairs_of``, as an option for a shell."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([f"{name}={value}" for name, value in pairs.items()])
    return f"--key {shlex.quote(line.getvalue())}"


def refuse_if_at_source(connection: Connection, keys: RowKeys) -> None:
    """Raises PreconditionError if the source has one of the rows: it would be replicated again."""
    table = sql.Identifier(keys.facts.nspname, keys.facts.relname)
    for texts in keys.texts:
        # with parameters, a % in a name would be taken for the place of one
        same = (
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(text))
            for name, text in zip(keys.names, texts, strict=True)
        )
        query = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(table, sql.SQL(" AND ").join(same))
        with source_errors(f"{keys.name} could not be read"):
            exists = connection.execute(query).fetchall()[0][0]
        if exists:
            raise PreconditionError(
                f"the source still has this row of {keys.name}, so it would be replicated again; nothing was changed",
                hint="delete it at the source first, then run this again",
            )


def _printed(
    connection: Connection, facts: RelationFacts, names: Sequence[str], pairs: Mapping[str, str]
) -> tuple[str, ...]:
    """What PostgreSQL prints for these values in the columns' types."""
    columns = {column.attname: column for column in facts.columns}
    printed: list[str] = []
    for name in names:
        column = columns[name]
        base = [column.base_typid, column.base_typmod, column.base_typid]
        with source_errors("the catalogue could not be read"):
            typed, whole = connection.execute(_TYPES, base).fetchall()[0]
        casts = (f"%(text)s::{kind.replace('%', '%%')}" for kind in (typed, whole))
        query = "SELECT " + _AS_PRINTED.format(**dict(zip(("typed", "whole"), casts, strict=True)))
        try:
            text, is_whole = connection.execute(query, {"text": pairs[name]}).fetchall()[0]
        except psycopg.DataError:  # its message quotes the value
            is_whole = False
        if not is_whole:
            raise ConfigurationError(f"the value of {name} in --key is not of type {typed}")
        printed.append(text)
    return tuple(printed)
