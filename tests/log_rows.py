"""The change log as any reader of Delta tables sees it."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from spark_jobs.configuration import Pipeline


def log_rows(pipeline: Pipeline, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """All rows of all kinds, in no order."""
    rows: list[dict[str, Any]] = DeltaTable(pipeline.lake.change_log).to_pyarrow_table(columns=columns).to_pylist()
    return rows
