"""Names in asset keys."""

from __future__ import annotations

import re

import dagster as dg

from spark_jobs.qualified_name import QualifiedName


def key_part(name: str) -> str:
    """A name in an asset key. Dagster turns keys into step names, so all but letters and digits becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def source_key(database: str, table: QualifiedName) -> dg.AssetKey:
    """The key of the external asset that stands for a source table."""
    return dg.AssetKey(["postgres", *map(key_part, (database, table.nspname, table.relname))])
