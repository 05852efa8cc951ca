"""The component as Dagster loads it: keys, dependencies, translation, overriding, scaffolding, errors."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._core.snap import JobSnap
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing.test_cases import TestTranslation
from dagster.components.testing.utils import create_defs_folder_sandbox
from dagster_pyspark import LazyPySparkResource
from dagster_shared.serdes import serialize_value

from cdc_assets import PostgresCdcComponent
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer
from cdc_assets.translation import TableSettings
from spark_jobs.configuration import ColumnSelection
from spark_jobs.errors import ConfigurationError
from spark_jobs.options.health_limits import Threshold
from spark_jobs.postgres.command_dsn import CommandDsn
from tests.dagster.component_project import dg_command, in_one_location, write_defs
from tests.dagster.shop_component import ASSETS, DSN, body, chain, checker, keys_and_deps, loaded
from tests.fixtures.servers import Database, fresh_database

pytestmark = pytest.mark.usefixtures("shop_dsn")

VERIFIED = {"shop/public/orders:verify", "shop/sales/Order_Items:verify"}


def test_assets_from_yaml() -> None:
    _, defs = loaded(body())
    assert keys_and_deps(defs) == ASSETS
    partitioned = {
        spec.key.to_user_string(): spec.partitions_def.name
        for spec in defs.resolve_all_asset_specs()
        if isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition)
    }
    assert partitioned == dict.fromkeys(["shop/change_log", "shop/public/orders", "shop/sales/Order_Items"], "shop_lsn")


def test_assets_from_python() -> None:
    component = PostgresCdcComponent(
        name="shop",
        source={"dsn": DSN},  # type: ignore[arg-type]
        lake={"path": "/data/lake/shop"},  # type: ignore[arg-type]
        tables=["public.orders", 'sales."Order Items"'],  # type: ignore[list-item]
    )
    assert keys_and_deps(component.definitions()) == ASSETS


def test_a_snapshot_of_every_table_whatever_its_mode() -> None:
    """Only the check that compares rows leaves out tables that hold changes."""
    _, defs = loaded(body(tables=["public.orders", {"name": "public.audit", "mode": "append"}]))
    selected = defs.resolve_job_def("shop_snapshot").asset_layer.selected_asset_keys
    assert {key.to_user_string() for key in selected} == {"shop/snapshot/public/orders", "shop/snapshot/public/audit"}
    checks = {key.to_user_string() for key in defs.resolve_asset_graph().asset_check_keys}
    assert "shop/public/orders:verify" in checks
    assert "shop/public/audit:verify" not in checks


def test_jobs_sensor_schedule_checks_resource_and_pool() -> None:
    _, defs = loaded(body())
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    assert {"shop_sync", "shop_snapshot", "shop_recover", "shop_maintenance", "shop_verify"} <= jobs
    assert defs.get_sensor_def("shop_slot_lag").default_status == dg.DefaultSensorStatus.STOPPED
    for schedule in ("shop_sync", "shop_verify"):
        assert defs.get_schedule_def(schedule).default_status == dg.DefaultScheduleStatus.STOPPED
    checks = {key.to_user_string() for key in defs.resolve_asset_graph().asset_check_keys}
    assert checks == {
        "shop/change_log:slot_health",
        "shop/public/orders:schema_unchanged",
        "shop/sales/Order_Items:schema_unchanged",
        "shop/public/orders:watermark_is_last_window",
        "shop/sales/Order_Items:watermark_is_last_window",
        *VERIFIED,
    }
    executed = {name: defs.resolve_job_def(name).asset_layer.asset_graph for name in ("shop_sync", "shop_verify")}
    assert {key.to_user_string() for key in executed["shop_verify"].asset_check_keys} == VERIFIED
    assert VERIFIED.isdisjoint(key.to_user_string() for key in executed["shop_sync"].asset_check_keys)
    assert set(defs.resources or {}) == {"shop_spark"}
    for key in (["shop", "change_log"], ["shop", "public", "orders"], ["shop", "snapshot", "public", "orders"]):
        assert defs.resolve_assets_def(dg.AssetKey(key)).op.pool == "postgres_cdc_shop"
        assert defs.resolve_assets_def(dg.AssetKey(key)).op.retry_policy is not None
        if key[1] != "snapshot":
            policy = defs.resolve_assets_def(dg.AssetKey(key)).backfill_policy
            assert policy == dg.BackfillPolicy.single_run()


def test_materialize_all_of_a_group_offers_its_partitions() -> None:
    """An asset without partitions among them would make Dagster offer none."""
    _, defs = loaded(body())
    groups: dict[str, set[bool]] = {}
    for spec in defs.resolve_all_asset_specs():
        groups.setdefault(spec.group_name or "", set()).add(spec.partitions_def is not None)
    assert {name: parts for name, parts in groups.items() if name.startswith("shop")} == {
        "shop": {True},
        "shop_snapshots": {False},
        "shop_upkeep": {False},
    }
    described = [spec.description or "" for spec in defs.resolve_all_asset_specs() if spec.partitions_def is not None]
    assert all("the sensor shop_slot_lag adds them" in description for description in described)


class TestTableTranslation(TestTranslation):
    """Every field of Dagster's asset attributes."""

    def test_translation(
        self,
        attributes: dict[str, Any],
        assertion: Callable[[dg.AssetSpec], bool],
        key_modifier: Callable[[dg.AssetKey], dg.AssetKey] | None,
    ) -> None:
        contents = body(tables=[{"name": "public.orders", "translation": attributes}])
        if "partitions_def" in attributes:  # the one that is not the user's to choose
            with pytest.raises(ComponentTreeException) as caught:
                loaded(contents)
            assert any("its partitions are the LSN windows" in message for message in chain(caught.value))
            return
        _, defs = loaded(contents)
        key = dg.AssetKey(["shop", "public", "orders"])
        key = key_modifier(key) if key_modifier else key
        assert assertion(defs.resolve_assets_def(key).get_asset_spec(key))


def test_defaults_apply_to_every_table() -> None:
    defaults = {"mode": "history", "translation": {"group_name": "{{ table.schema_name }}", "owners": ["team:data"]}}
    own = {"name": "sales.items", "mode": "append", "translation": {"group_name": "own"}}
    component, defs = loaded(body(tables=["public.orders", own], defaults=defaults))
    assert component.pipeline.tables is not None
    assert [table.mode for table in component.pipeline.tables] == ["history", "append"]
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    assert (specs["shop/public/orders"].group_name, specs["shop/public/orders"].owners) == ("public", ["team:data"])
    assert (specs["shop/sales/items"].group_name, specs["shop/sales/items"].owners) == ("own", [])


def test_options_of_columns_are_those_of_the_command(tmp_path: Path) -> None:
    options = {"types": {"amount": "decimal(38,10)", "tags": "array"}, "on_unrepresentable": {"until": None}}
    contents = body(tables=[{"name": "public.orders", **options}])
    component, _ = loaded(contents)
    file = tmp_path / "defs.yaml"
    file.write_text(yaml.safe_dump(contents))
    assert component.pipeline.tables == load_pipeline(file).tables
    assert component.pipeline.tables is not None
    assert len(component.pipeline.tables[0].options.types.columns) == 2


def test_translation_sees_the_table() -> None:
    translation = {"group_name": "{{ table.schema_name }}", "tags": {"table": "{{ table.table_name | lower }}"}}
    _, defs = loaded(body(tables=[{"name": "sales.Orders", "translation": translation}]))
    spec = defs.resolve_assets_def(dg.AssetKey(["shop", "sales", "orders"])).get_asset_spec(
        dg.AssetKey(["shop", "sales", "orders"])
    )
    assert (spec.group_name, spec.tags["table"]) == ("sales", "orders")


@pytest.mark.parametrize(
    ("lake", "name"), [({}, "shop.sales.orders"), ({"catalog": "main.shop_{schema}.{table}"}, "main.shop_sales.orders")]
)
def test_a_table_is_named_as_its_catalogue_names_it(lake: dict[str, str], name: str) -> None:
    _, defs = loaded(body(lake={"path": "/lake", **lake}, tables=["sales.orders"]))
    key = dg.AssetKey(["shop", "sales", "orders"])
    assert defs.resolve_assets_def(key).get_asset_spec(key).metadata["dagster/table_name"] == name


def test_a_table_may_name_its_columns() -> None:
    component, _ = loaded(body(tables=[{"name": "public.orders", "columns": {"exclude": ["email"]}}]))
    (table,) = component.pipeline.tables or ()
    assert table.columns == ColumnSelection(exclude=("email",))


class Bronze(PostgresCdcComponent):
    """A user's subclass."""

    def get_asset_spec(self, table: TableSettings) -> dg.AssetSpec:
        return super().get_asset_spec(table).replace_attributes(group_name="bronze", key=["lake", table.table_name])


def test_subclass_changes_specs() -> None:
    component = Bronze(
        name="shop",
        source={"dsn": DSN},  # type: ignore[arg-type]
        lake={"path": "/lake"},  # type: ignore[arg-type]
        tables=["public.orders"],  # type: ignore[list-item]
    )
    defs = component.definitions()
    dg.Definitions.validate_loadable(defs)
    key = dg.AssetKey(["lake", "orders"])
    spec = defs.resolve_assets_def(key).get_asset_spec(key)
    assert (spec.group_name, spec.metadata["dagster/uri"]) == ("bronze", "/lake/tables/public/orders")


def test_own_spark_resource() -> None:
    _, defs = loaded_with_resource(body(spark={"resource": "my_spark"}))
    assert "shop_spark" not in (defs.resources or {})


def loaded_with_resource(contents: dict[str, Any]) -> tuple[PostgresCdcComponent, dg.Definitions]:
    """A project that defines the resource itself."""
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=PostgresCdcComponent, defs_yaml_contents=contents)
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            own = dg.Definitions(resources={"my_spark": dg.ResourceDefinition.hardcoded_resource("a session")})
            dg.Definitions.validate_loadable(dg.Definitions.merge(defs, own))
            assert isinstance(component, PostgresCdcComponent)
            return component, defs


def test_relative_lake_is_the_same_place_for_the_command(tmp_path: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=PostgresCdcComponent, defs_yaml_contents=body(lake={"path": "lake"})
        )
        pipeline = load_pipeline(path / "defs.yaml")
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            key = dg.AssetKey(["shop", "change_log"])
            assert defs.resolve_assets_def(key).get_asset_spec(key).metadata["dagster/uri"] == pipeline.lake.change_log


def test_no_dsn_in_any_representation() -> None:
    component, defs = loaded(body())
    assert "hunter2" not in repr(component)
    assert not any("hunter2" in repr(spec) for spec in defs.resolve_all_asset_specs())


SECRET = "s3-secret-literal"


def test_spark_settings_are_not_in_what_dagster_stores_and_shows() -> None:
    config = {"spark.hadoop.fs.s3a.secret.key": SECRET}
    for spark in ({"config": config}, {"config": config, "remote": f"sc://spark:15002/;token={SECRET}"}):
        component, defs = loaded(body(spark=spark))
        assert SECRET in str(component.pipeline.spark.config)
        assert SECRET not in repr(component) + repr(component.pipeline)
        repository = defs.get_repository_def()
        stored = [serialize_value(RepositorySnap.from_def(repository))]
        stored += [serialize_value(JobSnap.from_job_def(job)) for job in repository.get_all_jobs()]
        assert "shop_spark" in stored[0]
        assert not any(SECRET in text for text in stored)
        with dg.build_resources({"spark": (defs.resources or {})["shop_spark"]}) as resources:
            assert isinstance(resources.spark, LazyPySparkResource)
            assert SECRET not in repr(resources.spark)


def test_settings_without_a_template_reach_the_pipeline() -> None:
    component, _ = loaded(body(merge={"engine": "auto"}, health={"lag_bytes": {"warn": "2GiB"}}))
    assert component.pipeline.merge_engine == "auto"
    assert component.pipeline.health.lag_bytes == Threshold(2 << 30, 10 << 30)


def test_pipelines_with_slots_of_one_name_have_nothing_in_common() -> None:
    eu, us = (loaded(body(name=name, source={"dsn": DSN, "slot": "cdc"}))[1] for name in ("eu", "us"))
    pools, tags = [], []
    for name, defs in (("eu", eu), ("us", us)):
        pools.append(defs.resolve_assets_def(dg.AssetKey([name, "change_log"])).op.pool)
        tags.append(dict(defs.resolve_job_def(f"{name}_sync").tags))
    assert pools == ["postgres_cdc_eu", "postgres_cdc_us"]
    assert [tag["postgres_cdc/pipeline"] for tag in tags] == ["eu", "us"]


def test_tables_with_one_snapshot_key_are_refused() -> None:
    translated = {"name": 'public."a-b"', "translation": {"key": "lake/other"}}
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it in errors of its own
        loaded(body(tables=["public.a_b", translated]))
    said = 'pipeline shop: public.a_b and public."a-b" have the asset key shop/snapshot/public/a_b in common'
    assert any(said in message for message in chain(caught.value))


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"sourcee": {}}, "sourcee"),
        ({"source": {"dsn": "{{ env.NO_SUCH }}"}}, "environment variable NO_SUCH is not set"),
        ({"source": {"dsn": "host={{ env.NO_SUCH }}"}}, "environment variable NO_SUCH is not set"),
        (
            {"source": {"dsn": "{{ env.SHOP_DSN }}", "streaming": "sometimes"}},
            "source.streaming: expected 'off', 'on' or 'parallel', not sometimes",
        ),
        ({"source": {"dsn": "nonsense hunter2"}}, "source.dsn is not a PostgreSQL connection string"),
        ({"windows": {"max_bytes": "256MB"}}, "windows.max_bytes: expected a size (units B, KiB, MiB, GiB, TiB), not"),
        ({"tables": ["public..orders"]}, "not a table name: 'public..orders'"),
        ({"tables": ["public.orders", "orders"]}, "names public.orders twice"),
        ({"tables": [{"name": "a", "mod": "mirror"}]}, "tables[0].mod: unknown field (did you mean mode?)"),
        (
            {"tables": [{"name": "a", "translation": {"group_nam": "x"}}]},
            "tables[0].translation.group_nam: unknown field",
        ),
        ({"tables": None}, "run `dg utils refresh-defs-state`, or list the tables"),
        ({"tables": ["public.*"]}, "run `dg utils refresh-defs-state`, or list the tables"),
        ({"defaults": {"mod": "history"}}, "defaults.mod: unknown field (did you mean mode?)"),
        ({"defaults": {"translation": {"grup": "x"}}}, "defaults.translation.grup: unknown field"),
        (
            {"exclude": ["public.o*"]},
            "exclude: public.o* leaves out public.orders; take it out of exclude or of tables",
        ),
    ],
)
def test_wrong_attributes(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it in errors of its own
        loaded(body(**attributes))
    messages = list(chain(caught.value))
    assert any(said in message for message in messages)
    assert not any("hunter2" in message for message in messages)


def test_tables_are_needed_from_python_too() -> None:
    component = PostgresCdcComponent(name="shop", source={"dsn": DSN}, lake={"path": "/lake"})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="list the tables"):
        component.definitions()


def test_templates_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTES", "1MiB")
    monkeypatch.setenv("MODE", "on")
    monkeypatch.setenv("TABLE", "public.things")
    component, _ = loaded(
        body(
            source={"dsn": "{{ env.SHOP_DSN }}", "streaming": "{{ env.MODE }}", "two_phase": "{{ env('P', 'true') }}"},
            windows={"max_bytes": "{{ env.BYTES }}"},
            tables=["{{ env.TABLE }}"],
            spark={"config": {"spark.x": "{{ env.MODE }}", "spark.y": 3}},
        )
    )
    assert (component.source.streaming, component.source.two_phase) == ("on", True)
    assert component.windows.max_bytes == 1 << 20
    assert component.spark.config == {"spark.x": "on", "spark.y": "3"}
    assert component.tables is not None
    assert component.tables[0].table_name == "things"


def test_the_command_for_the_password_may_be_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", "host=db.example user=cdc dbname=shop")
    monkeypatch.setenv("DB_PORT", "5433")
    command = ["token", "--port", "{{ env.DB_PORT }}"]
    component, definitions = loaded(body(source={"dsn": "{{ env.SHOP_DSN }}", "password_command": command}))
    dsn = component.pipeline.source.dsn
    assert isinstance(dsn, CommandDsn)
    assert dsn.command.words == ("token", "--port", "5433")
    assert "token" not in repr(component)
    assert "token" not in repr(definitions.get_repository_def().get_all_jobs())


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"tables": [*(f"t{n}" for n in range(99)), {"name": "a", "mod": "mirror"}]}, "tables.99"),
        ({"tables": [{"name": "a", "mode": "mirrored"}]}, "tables.0.mode"),
        ({"tables": [{"name": "a", "columns": {"omit": ["b"]}}]}, "tables.0.columns"),
        ({"tables": [{"name": "a", "mask": ["b"]}]}, "tables.0.mask"),
        ({"tables": [{"name": "a", "on_unrepresentable": {"b": 5}}]}, "tables.0.on_unrepresentable.b"),
        ({"tables": [{"name": "a", "translation": {"group_nam": "x"}}]}, "tables.0.translation"),
        ({"tables": "public.orders"}, "tables"),
        ({"tables": [5]}, "tables.0"),
        ({"health": {"lag_bytes": {"warn": [1]}}}, "health.lag_bytes.warn"),
        ({"source": {"dsn": "x", "plugin": "wal2json"}}, "source.plugin"),
        ({"source": {"dsn": "x", "messages": {"prefix": ["a"]}}}, "source.messages"),
    ],
)
def test_the_schema_leads_a_checker_to_the_field(wrong: dict[str, Any], place: str) -> None:
    """And to one line, whatever else the file lists."""
    errors = list(checker().iter_errors(body(**wrong)["attributes"]))
    assert {".".join(map(str, error.absolute_path)) for error in errors} == {place}
    assert all(len(error.message) < 200 for error in errors)


@pytest.mark.parametrize("template", [{"tables": "{{ tables() }}"}, {"tables": ["{{ env.T }}"]}, {"health": "{{ h }}"}])
def test_the_schema_allows_templates_everywhere(template: dict[str, Any]) -> None:
    assert checker().is_valid(body(**template)["attributes"])


def test_the_schema_describes_every_field() -> None:
    schema = PostgresCdcComponent.get_model_cls().model_json_schema()  # type: ignore[union-attr]
    ours = {name: part.get("else", part) for name, part in schema["$defs"].items() if "PartitionsDef" not in name}
    assert {"SourceModel", "TableSettings", "HealthModel", "PostgresCdcComponent"} <= ours.keys()
    for name, part in ours.items():
        if name == "AssetSpecUpdateKwargsModel":
            continue  # Dagster's
        for field, described in part["properties"].items():
            model = schema["$defs"].get(str(described.get("else", described).get("$ref", "")).rpartition("/")[2], {})
            assert described.get("description") or model.get("description"), f"{name}.{field}"


class WithOwner(PostgresCdcComponent):
    """A user's subclass with fields of its own, one of which it resolves."""

    owner: str
    length: Annotated[int, dg.Resolver(lambda _context, value: len(value), model_field_type=str)] = 0


def test_a_subclass_may_have_fields_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWNER", "team:data")
    component = WithOwner.from_attributes_dict(attributes=body(owner="{{ env.OWNER }}", length="four")["attributes"])
    assert (component.owner, component.length) == ("team:data", 4)


@pytest.mark.slow
def test_scaffolded_file_loads(project: Path) -> None:
    made = dg_command(project, "scaffold", "defs", "cdc_assets.PostgresCdcComponent", "web_shop")
    assert made.returncode == 0, made.stdout + made.stderr
    file = project / "mine" / "defs" / "web_shop" / "defs.yaml"
    assert yaml.safe_load(file.read_text())["attributes"]["name"] == "web_shop"
    assert f"postgres-cdc doctor --config {file.relative_to(project)}" in file.read_text(), "from where dg was run"
    environment = {"WEB_SHOP_DSN": DSN, "WEB_SHOP_LAKE": "/data/lake"}
    checked = dg_command(project, "check", "yaml", "--validate-requirements", **environment)
    assert "validated successfully" in checked.stdout, checked.stdout
    loaded = dg_command(project, "check", "defs", **environment)
    assert "All definitions loaded successfully" in loaded.stdout, loaded.stdout + loaded.stderr


@pytest.mark.slow
@pytest.mark.postgres
def test_scaffolded_file_lists_the_tables_of_a_database(project: Path, database: Database) -> None:
    odd = 'public."{{ x }}: # {# y #}"'
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", f"CREATE TABLE {odd} (id int PRIMARY KEY)")
    scaffold = ("scaffold", "defs", "cdc_assets.PostgresCdcComponent", "Web-Shop", "--dsn-env", "ITS_DSN")
    refused = dg_command(project, *scaffold, ITS_DSN="host=127.0.0.1 port=1 password=hunter2")
    assert refused.returncode == 1
    assert "Error: cannot connect to PostgreSQL" in refused.stderr
    assert "hunter2" not in refused.stdout + refused.stderr
    made = dg_command(project, *scaffold, ITS_DSN=database.dsn)
    assert made.returncode == 0, made.stdout + made.stderr
    file = project / "mine" / "defs" / "Web-Shop" / "defs.yaml"
    assert "- public.orders  # 8.0 KiB; key (id)" in file.read_text().replace("0 bytes", "8.0 KiB")
    environment = {"ITS_DSN": database.dsn, "WEB_SHOP_LAKE": "/data/lake"}
    checked = dg_command(project, "check", "yaml", "--validate-requirements", **environment)
    assert "validated successfully" in checked.stdout, checked.stdout
    listed = dg_command(project, "list", "defs", "--json", **environment)
    for key in ("web_shop/public/orders", f"postgres/{database.name}/public/___x__________y___"):
        assert f'"{key}"' in listed.stdout, listed.stdout


@pytest.mark.slow
def test_dg_points_at_file_and_line(project: Path) -> None:
    write_defs(project, body(source={"dsn": "host=x", "slott": "y"}))
    checked = dg_command(project, "check", "yaml")
    assert checked.returncode != 0
    assert "defs.yaml:6 - cdc_assets.PostgresCdcComponent attributes.source.slott" in checked.stdout
    write_defs(project, body(health={"lag_bytes": {"warn": "2GiB"}}))
    checked = dg_command(project, "check", "yaml")
    assert "validated successfully" in checked.stdout, checked.stdout


def test_pipelines_on_one_database_share_its_source_assets(importable: Path) -> None:
    mirror = body(name="mirror", lake={"path": "/data/mirror"}, tables=["public.orders", "public.items"])
    past = body(name="past", lake={"path": "/data/past"}, tables=["public.orders", "public.visits"])
    deps = in_one_location(importable, mirror, past)
    sources = {f"postgres/shopdb/public/{table}" for table in ("orders", "items", "visits")}
    assert {key for key in deps if key.startswith("postgres/")} == sources
    assert deps["past/snapshot/public/orders"] == deps["mirror/snapshot/public/orders"]
    assert deps["past/snapshot/public/orders"] == {"postgres/shopdb/public/orders"}


def test_databases_of_one_name_are_told_apart(importable: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = "host=us.example user=cdc password=hunter2 dbname=shopdb"
    eu = body(name="eu", tables=["public.orders"])
    us = body(name="us", source={"dsn": other}, tables=["public.orders"])
    in_one_location(importable, eu, us)
    assert "pipelines eu and us have the same source assets, postgres/shopdb/..." in caplog.text
    assert "us.example" not in caplog.text
    caplog.clear()
    us["attributes"]["source"]["key_prefix"] = ["us", "shop"]
    deps = in_one_location(importable, us)
    assert deps["us/snapshot/public/orders"] == {"us/shop/public/orders"}
    assert deps["eu/snapshot/public/orders"] == {"postgres/shopdb/public/orders"}
    assert caplog.text == ""


_LOADED_AS_IN_PRODUCTION = """
from mine.definitions import defs
specs = defs().resolve_all_asset_specs()
print([sorted(spec.key.to_user_string() for spec in specs),
       sorted(spec.key.to_user_string() for spec in specs if "what was sold" in (spec.description or ""))])
"""


@pytest.mark.postgres
def test_tables_of_the_publication_are_asked_once_and_kept(project: Path, postgres_18: PostgresServer) -> None:
    write_defs(project, body(tables=None))
    with fresh_database(postgres_18) as database:
        database.execute(
            "CREATE TABLE orders (id int PRIMARY KEY)",
            'CREATE TABLE "Order Items" (id int PRIMARY KEY)',
            "CREATE TABLE unpublished (id int PRIMARY KEY)",
            "COMMENT ON TABLE orders IS 'what was sold'",
            'CREATE PUBLICATION shop FOR TABLE orders, "Order Items"',
        )
        refreshed = dg_command(project, "utils", "refresh-defs-state", SHOP_DSN=database.dsn)
        assert refreshed.returncode == 0, refreshed.stdout + refreshed.stderr
        name = database.name
    # the database is gone: a load does not ask it
    loaded = subprocess.run(
        [sys.executable, "-c", _LOADED_AS_IN_PRODUCTION],
        cwd=project,
        env={**os.environ, "SHOP_DSN": database.dsn, "DAGSTER_HOME": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    followed = [f"shop/{kind}public/{table}" for kind in ("", "snapshot/") for table in ("orders", "Order_Items")]
    sources = [f"postgres/{name}/public/{table}" for table in ("orders", "Order_Items")]
    everything, commented = ast.literal_eval(loaded.stdout)
    assert everything == sorted(["shop/change_log", "shop/maintenance", *followed, *sources])
    assert commented == [f"postgres/{name}/public/orders", "shop/public/orders"]


_WITH_PATTERNS = """
from mine.definitions import defs
specs = {spec.key.to_user_string(): spec for spec in defs().resolve_all_asset_specs()}
print({key: spec.group_name for key, spec in specs.items() if spec.group_name and "snapshot" not in key})
"""


@pytest.mark.postgres
def test_tables_that_match_patterns_are_asked_once_and_kept(project: Path, postgres_18: PostgresServer) -> None:
    tables = ["public.*", {"name": "public.orders", "translation": {"group_name": "orders"}}]
    defaults = {"mode": "history", "translation": {"group_name": "all"}}
    write_defs(project, body(tables=tables, defaults=defaults, exclude=["public.audit_*"]))
    with fresh_database(postgres_18) as database:
        database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("orders", "items", "audit_log")))
        refreshed = dg_command(project, "utils", "refresh-defs-state", SHOP_DSN=database.dsn)
        assert refreshed.returncode == 0, refreshed.stdout + refreshed.stderr
    loaded = subprocess.run(
        [sys.executable, "-c", _WITH_PATTERNS],
        cwd=project,
        env={**os.environ, "SHOP_DSN": database.dsn, "DAGSTER_HOME": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr
    groups = ast.literal_eval(loaded.stdout)
    assert {key: groups[key] for key in groups if "/public/" in key and key.startswith("shop/")} == {
        "shop/public/items": "all",
        "shop/public/orders": "orders",
    }


@pytest.mark.postgres
def test_a_publication_that_is_not_there_is_told_by_dg(project: Path, postgres_18: PostgresServer) -> None:
    write_defs(project, body(tables=None))
    with fresh_database(postgres_18) as database:
        refreshed = dg_command(project, "utils", "refresh-defs-state", SHOP_DSN=database.dsn)
    said = " ".join((refreshed.stdout + refreshed.stderr).split())
    assert refreshed.returncode != 0
    assert "there is no publication shop, and the configuration names no tables" in said
