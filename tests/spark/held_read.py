"""A snapshot whose last row cannot be read until the test allows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_jobs.snapshot import snapshot_tables as snapshot_module
from spark_jobs.snapshot.read_progress import read_progress
from tests.fixtures.servers import Database


def toast_index(database: Database, table: str) -> str:
    ((index,),) = database.execute(
        "SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.reltoastrelid = i.indrelid"
        f" WHERE c.oid = '{table}'::regclass"
    )
    return str(index)


def held_at_the_last_row(database: Database, index: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the tables be planned, but their last row not be read until the function returned is called."""
    holder = database.connect()

    @contextmanager
    def held(*arguments: Any) -> Iterator[Any]:
        holder.execute("BEGIN")
        holder.execute(f"REINDEX INDEX {index}")  # locks it until the end
        with read_progress(*arguments) as reading:
            yield reading

    monkeypatch.setattr(snapshot_module, "read_progress", held)
    return holder.close
