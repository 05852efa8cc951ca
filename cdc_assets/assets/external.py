"""The source tables as external assets: where lineage begins."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from cdc_assets.asset_keys import key_part, source_key
from spark_jobs.qualified_name import QualifiedName


def with_comment(description: str, comment: str) -> str:
    """What PostgreSQL's comment on the table says comes first."""
    return f"{comment}\n\n{description}" if comment else description


def source_spec(prefix: Sequence[str], database: str, table: QualifiedName, comment: str) -> dg.AssetSpec:
    """The external asset of one source table."""
    return dg.AssetSpec(
        key=source_key(prefix, table),
        description=with_comment(f"PostgreSQL table {table} of database {database}.", comment),
        kinds={"postgres", "table"},
        group_name="_".join(map(key_part, prefix)),
        metadata={
            "dagster/table_name": f"{database}.{table.nspname}.{table.relname}",
            "dagster/storage_kind": "postgres",
        },
    )
