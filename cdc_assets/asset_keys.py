"""Names in asset keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

import dagster as dg

from spark_jobs.qualified_name import QualifiedName


def key_part(name: str) -> str:
    """A name in an asset key. Dagster turns keys into step names, so all but letters and digits becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def change_log_key(name: str) -> dg.AssetKey:
    """The key of the change log of the pipeline ``name``."""
    return dg.AssetKey([name, "change_log"])


def snapshot_key(name: str, table: QualifiedName) -> dg.AssetKey:
    return dg.AssetKey([name, "snapshot", key_part(table.nspname), key_part(table.relname)])


def table_key(name: str, table: QualifiedName) -> dg.AssetKey:
    """The key before translation."""
    return dg.AssetKey([name, key_part(table.nspname), key_part(table.relname)])


def calendar_key(name: str, calendar: str) -> dg.AssetKey:
    """The key of the asset of days or hours, before translation."""
    return dg.AssetKey([name, calendar])


def source_key(prefix: Sequence[str], table: QualifiedName) -> dg.AssetKey:
    """The key of the external asset that stands for a source table. ``prefix`` tells sources apart: ``postgres`` and
    the database, or what the configuration says."""
    return dg.AssetKey([*map(key_part, (*prefix, table.nspname, table.relname))])
