"""The check ``verify`` on each table compares it with the source, row by row, at one LSN. It has its own job.

Keys of differing rows may be personal data, and Dagster keeps its events. So they are not in the metadata; the command
prints them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import dagster as dg

from cdc_assets.blueprint import Blueprint
from cdc_assets.failures import failures
from cdc_assets.logged_progress import logged_progress
from spark_jobs.qualified_name import QualifiedName

if TYPE_CHECKING:
    from spark_jobs.verify.table_verified import TableVerified

_CONFIGURATION = {
    "quick": dg.Field(bool, default_value=False, description="Compare hashes, and row by row only what differs.")
}


def verify_checks(blueprint: Blueprint) -> dg.AssetChecksDefinition:
    """All tables of the pipeline except those in mode ``append``; the selected ones are compared at one LSN."""
    tables = {blueprint.verify_check_key(table): table for table in blueprint.verified_tables}

    @dg.multi_asset_check(
        name=f"{blueprint.name}_verify_tables",
        specs=[_spec(key) for key in tables],
        can_subset=True,
        config_schema=_CONFIGURATION,
        pool=blueprint.pool,
        op_tags=blueprint.op.tags,
        required_resource_keys={blueprint.spark_resource},
    )
    def verify_tables(context):  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        # Dagster adds an asset's checks to each run that materialises it; this one often costs more than the run
        if context.job_def.asset_layer.selected_asset_keys:
            context.log.info("verify is left out of runs that materialise tables: %s executes it", blueprint.verify_job)
            return
        yield from _verify(context, blueprint, tables)

    return verify_tables


def _spec(key: dg.AssetCheckKey) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        key.name,
        asset=key.asset_key,
        description="The Delta table holds exactly the source's rows, all of them compared at one LSN.",
    )


def _verify(
    context: dg.AssetCheckExecutionContext, blueprint: Blueprint, tables: Mapping[dg.AssetCheckKey, QualifiedName]
) -> Iterator[dg.AssetCheckResult]:
    from spark_jobs.verify.compare_table import Thoroughness
    from spark_jobs.verify.verify import verify

    keys = {table: key for key, table in tables.items() if key in context.selected_asset_check_keys}
    with failures(blueprint.remedies):
        report = verify(
            blueprint.pipeline,
            blueprint.spark_of(context),
            tuple(keys),
            how=Thoroughness(quick=context.op_execution_context.op_config["quick"]),
            run_id=context.run.run_id,
            progress=logged_progress(context.log.info),
        )
    for table in report.tables:
        yield _result(keys[table.name], table)


def _result(key: dg.AssetCheckKey, table: TableVerified) -> dg.AssetCheckResult:
    """A table that was not compared is a warning, since nothing indicates a difference."""
    version = {} if table.delta_version is None else {"delta_version": table.delta_version}
    counts = asdict(table.counts) if table.error is None else {}
    problem = table.problem
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=table.verdict == "equal",
        severity=dg.AssetCheckSeverity.WARN if table.error else dg.AssetCheckSeverity.ERROR,
        description=problem.lines if problem else f"all {table.counts.source_rows:,} rows are equal at {table.lsn}",
        metadata={"verdict": table.verdict, "lsn": str(table.lsn), **version, **counts},
    )
