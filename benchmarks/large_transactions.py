"""Peak memory of ``postgres-cdc sync`` for one transaction of many or of wide rows, streamed: it must not grow with it.

Two million rows in a thousand subtransactions, as many rolled back after each; two hundred rows of a megabyte; and a
tenth of each, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.measurement import Measurement
from benchmarks.sync_process import sync_alone
from benchmarks.workload import ROW, Size, make_table
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.qualified_name import QualifiedName

_SUBTRANSACTIONS = 1_000
_MIB = 1 << 20
_MEGABYTE = "SELECT string_agg(md5(random()::text), '') AS v FROM generate_series(1, 32 * 1024)"


@dataclass(frozen=True)
class Transaction:
    """``insert`` takes the first and the last id of a step."""

    table: QualifiedName
    insert: str
    rows: int
    steps: int


def transactions(size: Size) -> tuple[Transaction, ...]:
    """The small one of each kind comes before the large one."""
    cases = []
    for rows in (2 * size.unit, 20 * size.unit):
        table = QualifiedName("public", f"rows_{rows}")
        insert = f"INSERT INTO {table} SELECT {ROW} FROM generate_series({{}}, {{}}) g"
        cases.append(Transaction(table, insert, rows, min(_SUBTRANSACTIONS, rows)))
    for rows in (max(2, size.unit // 5_000), max(20, size.unit // 500)):
        table = QualifiedName("public", f"megabytes_{rows}")
        insert = f"INSERT INTO {table} SELECT g, v FROM megabyte, generate_series({{}}, {{}}) g"
        cases.append(Transaction(table, insert, rows, rows))
    return tuple(cases)


def measure_large_transactions(
    server: PostgresServer, configuration_of: Callable[[str, tuple[QualifiedName, ...]], Path], size: Size
) -> Iterator[Measurement]:
    """``configuration_of`` writes the file of a pipeline that streams. Whoever has a Spark session compares the tables
    of ``transactions`` afterwards."""
    with psycopg.connect(server.dsn()) as connection:
        connection.execute(f"CREATE TABLE megabyte AS {_MEGABYTE}")
    for each in transactions(size):
        if each.table.relname.startswith("rows"):
            make_table(server, each.table, 0)
        else:
            _make_wide_table(server, each.table)
        configuration = configuration_of(each.table.relname, (each.table,))
        sync_alone(configuration)
        _run(server, each)
        seconds, peak = sync_alone(configuration)
        what = f"one transaction, {each.table.relname}"
        for name, memory in (("driver", peak.driver), ("JVM", peak.jvm), ("Python workers", peak.workers)):
            yield Measurement(f"{what}: {name}", seconds, each.rows, mebibytes=memory / _MIB)


def _make_wide_table(server: PostgresServer, table: QualifiedName) -> None:
    with psycopg.connect(server.dsn()) as connection:
        connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, v text)")
        connection.execute(f"ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL")  # not to measure its compression


def _run(server: PostgresServer, transaction: Transaction) -> None:
    step = transaction.rows // transaction.steps
    with psycopg.connect(server.dsn()) as connection:
        for lo in range(1, transaction.rows + 1, step):
            connection.execute("SAVEPOINT kept")
            connection.execute(transaction.insert.format(lo, lo + step - 1))
            connection.execute("SAVEPOINT dropped")
            connection.execute(transaction.insert.format(-lo, -lo))
            connection.execute("ROLLBACK TO dropped")
