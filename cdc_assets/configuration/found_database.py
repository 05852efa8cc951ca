"""The tables of a database, as the doctor finds them: what a configuration may begin with."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from cdc_assets.configuration.database_name import pipeline_name
from spark_jobs.configuration import Lake, Pipeline, Source, Table
from spark_jobs.doctor import Check, Verdict, diagnose_source
from spark_jobs.errors import ConfigurationError
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.table_sizes import TableSize, user_tables
from spark_jobs.qualified_name import QualifiedName, quoted_identifier

_FEW = 10


@dataclass(frozen=True)
class FoundTable:
    """``bytes``: on disk. ``found``: what identifies its rows, or why it cannot be followed as it is; then ``remedy``
    says what to do."""

    name: QualifiedName
    bytes: int
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class FoundDatabase:
    """What a new pipeline ``name`` would find. ``problems``: what is wrong with the server, the role or the
    publication. ``tables`` are those that were asked for, ordered by name."""

    name: str
    database: str
    problems: tuple[Check, ...]
    tables: tuple[FoundTable, ...]

    @property
    def usable(self) -> tuple[FoundTable, ...]:
        """The tables that can be followed as they are."""
        return tuple(table for table in self.tables if table.verdict is not Verdict.FAIL)


def dsn_of(variable: str, instead: str | None = None) -> SecretStr:
    """The connection string that the environment variable holds, or what is given ``instead``. Raises
    ConfigurationError, also for a name that no variable can have."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise ConfigurationError(f"not a name of an environment variable: {variable}", hint="for example SHOP_DSN")
    dsn = os.environ.get(variable, "") if instead is None else instead
    if not dsn.strip():
        what = f"environment variable {variable} is not set"
        raise ConfigurationError(what, hint=f"export {variable}='host=... dbname=... user=... password=...'")
    return SecretStr(dsn)


def look_at(dsn: SecretStr, *, name: str | None = None, patterns: Sequence[TablePattern] = ()) -> FoundDatabase:
    """What the database holds, in a fixed number of queries for each hundred tables; nothing is changed. ``name``: the
    pipeline's, by default the database's. ``patterns``: of the tables' names; none for all.

    Raises ConfigurationError if there is no such table, SourceError as the doctor's queries do.
    """
    with connected(dsn) as connection:
        database = connection.info.dbname
        tables = user_tables(connection)
    chosen = tuple(
        table for table in tables if not patterns or any(pattern.matches(table.name) for pattern in patterns)
    )
    if not chosen:
        matching = f" that matches {', '.join(map(str, patterns))}" if tables else ""
        raise ConfigurationError(f"database {database} has no table{matching}", hint=_instead(tables))
    name = name or pipeline_name(database)
    followed = tuple(Table(table.name) for table in chosen if not table.is_foreign)
    checks = diagnose_source(Pipeline(name, Source(dsn, name, name), Lake("lake"), tables=followed)).checks
    of_tables: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        of_tables[check.what].append(check)
    entries = tuple(_found(table, of_tables.pop(str(table.name), ())) for table in chosen)
    others = (check for left in of_tables.values() for check in left)
    return FoundDatabase(name, database, tuple(check for check in others if check.verdict is not Verdict.OK), entries)


def _instead(tables: Sequence[TableSize]) -> str:
    if not tables:
        return "name another database in the connection string, with dbname=..."
    schemas = sorted({quoted_identifier(table.name.nspname) for table in tables})
    return f"it has {len(tables):,} tables, in {', '.join([*schemas[:_FEW], *['...'] * (len(schemas) > _FEW)])}"


def _found(table: TableSize, checks: Sequence[Check]) -> FoundTable:
    if table.is_foreign:
        remedy = "replicate it from the database that holds it"
        return FoundTable(table.name, table.bytes, Verdict.FAIL, "is a foreign table", remedy)
    verdict = next((bad for bad in (Verdict.FAIL, Verdict.WARN) if any(c.verdict is bad for c in checks)), Verdict.OK)
    return FoundTable(
        table.name,
        table.bytes,
        verdict,
        "; ".join(check.found for check in checks),
        "; ".join(check.remedy for check in checks if check.remedy),
    )
