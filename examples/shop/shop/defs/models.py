"""The models of dbt in ``dbt/``: one that is built for each day, and one that follows new rows."""

import json
from pathlib import Path

import dagster as dg
from dagster_dbt import DagsterDbtTranslator, DbtCliResource, DbtProject, dbt_assets

import cdc_assets
from shop.days import BY_THREE, DAILY, DAYS, WHEN_COMPLETE

FOLDER = Path(__file__).parents[2] / "dbt"
PROJECT = DbtProject(FOLDER)
# each run loads this file: dbt parses its models only when one has changed, which takes longer than most runs
CHANGED = max(file.stat().st_mtime for part in ("models", "macros") for file in (FOLDER / part).rglob("*"))
if not PROJECT.manifest_path.exists() or PROJECT.manifest_path.stat().st_mtime < CHANGED:
    PROJECT.preparer.prepare(PROJECT)


class OfDays(DagsterDbtTranslator):
    """They read a day's cut, which dbt does not know as a source."""

    def get_asset_spec(self, manifest, unique_id, project) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        return spec.replace_attributes(
            deps=[DAILY],
            group_name="gold_by_day",
            automation_condition=WHEN_COMPLETE,
            freshness_policy=BY_THREE,
        )


class OfRows(DagsterDbtTranslator):
    """They are brought up to date with each change of their source."""

    def get_asset_spec(self, manifest, unique_id, project) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        condition = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())
        return spec.replace_attributes(group_name="gold", automation_condition=condition)


# a file of DuckDB has one writer at a time: a pool of one place, see dagster.yaml
@dbt_assets(
    manifest=PROJECT.manifest_path,
    select="tag:daily",
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.multi_run(),  # a run shows one day; dagster-dbt's own is one run for all
    pool="duckdb",
    dagster_dbt_translator=OfDays(),
)
def models_of_days(context: dg.AssetExecutionContext, dbt: DbtCliResource):
    orders = cdc_assets.at(context, "public.orders")
    variables = {"day": context.partition_key, "orders": {"path": orders.path, "version": orders.version}}
    yield from dbt.cli(["build", "--vars", json.dumps(variables)], context=context).stream()


@dbt_assets(manifest=PROJECT.manifest_path, exclude="tag:daily", pool="duckdb", dagster_dbt_translator=OfRows())
def models_of_rows(context: dg.AssetExecutionContext, dbt: DbtCliResource):
    yield from dbt.cli(["build"], context=context).stream()


@dg.definitions
def dbt() -> dg.Definitions:
    return dg.Definitions(
        assets=[models_of_days, models_of_rows], resources={"dbt": DbtCliResource(project_dir=PROJECT)}
    )
