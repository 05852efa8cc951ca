"""Reads one Delta table with one reader: ``python read.py READER TABLE`` prints JSON, its rows or why it refuses.

It runs in the readers' own environment, so it imports nothing of this repository.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def polars(table: str) -> Rows:
    import polars as pl  # type: ignore[import-not-found]

    return list(pl.read_delta(table).to_dicts())


def pandas(table: str) -> Rows:
    from deltalake import DeltaTable

    frame = DeltaTable(table).to_pandas()
    return list(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def pyarrow(table: str) -> Rows:
    from deltalake import DeltaTable

    return list(DeltaTable(table).to_pyarrow_table().to_pylist())


def query_builder(table: str) -> Rows:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    result = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT * FROM t")
    return list(pa.table(result).to_pylist())


def datafusion(table: str) -> Rows:
    from datafusion import SessionContext  # type: ignore[import-not-found]
    from deltalake import DeltaTable

    context = SessionContext()
    context.register_table("t", DeltaTable(table))
    return list(context.sql("SELECT * FROM t").to_arrow_table().to_pylist())


def daft(table: str) -> Rows:
    from daft import read_deltalake  # type: ignore[import-not-found]

    return list(read_deltalake(table).to_arrow().to_pylist())


def duckdb(table: str) -> Rows:
    import duckdb
    import duckdb_extension_delta

    (extension,) = Path(next(iter(duckdb_extension_delta.__path__))).glob(f"extensions/v{duckdb.__version__}/*")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        return list(connection.execute("SELECT * FROM delta_scan(?)", [table]).to_arrow_table().to_pylist())


def chdb(table: str) -> Rows:
    from chdb import query  # type: ignore[import-not-found]

    return list(query(f"SELECT * FROM deltaLakeLocal('{table}')", "ArrowTable").to_pylist())


READERS: Mapping[str, Callable[[str], Rows]] = {
    "polars": polars,
    "pandas": pandas,
    "pyarrow": pyarrow,
    "query_builder": query_builder,
    "datafusion": datafusion,
    "daft": daft,
    "duckdb": duckdb,
    "chdb": chdb,
}


def printed(rows: Rows) -> list[str]:
    """The rows as texts, in an order of their own: the same for the same values, whichever types a reader has."""
    return sorted(json.dumps({name: _value(each) for name, each in row.items()}, sort_keys=True) for row in rows)


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float, Decimal)):
        number = Decimal(str(value))
        return str(number.normalize()) if number.is_finite() else str(float(value))
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(name): _value(each) for name, each in value.items()}
    return [_value(each) for each in value] if hasattr(value, "__iter__") else _value(value.item())


def main(reader: str, table: str) -> None:
    try:
        answer: dict[str, Any] = {"rows": printed(READERS[reader](table))}
    except BaseException as error:  # noqa: BLE001 - some raise Rust's panics, which are no Exception
        answer = {"refused": f"{type(error).__name__}: {error}".splitlines()[0]}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # Arrow's threads may still hold files of deltalake's: the interpreter's end would be an abort


if __name__ == "__main__":
    main(*sys.argv[1:])
