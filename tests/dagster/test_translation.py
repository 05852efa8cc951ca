"""The component's own ``translation`` and ``op``: for assets of every kind, and for all ops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing.test_cases import TestTranslation

from cdc_assets.configuration.load_pipeline import load_pipeline
from tests.dagster.component_project import in_one_location
from tests.dagster.pipeline_under_dagster import under_dagster
from tests.dagster.shop_component import ASSETS, BODY, body, chain, loaded
from tests.fixtures.servers import Database

pytestmark = pytest.mark.usefixtures("shop_dsn")

KINDS = {
    "shop/change_log": "change_log",
    "shop/maintenance": "maintenance",
    "shop/_messages": "messages",
    "shop/snapshot/public/orders": "snapshot",
    "shop/public/orders": "table",
    "postgres/shopdb/public/orders": "source",
}
OF_ORDERS = {key for key in KINDS if key.endswith("/public/orders")}


def with_messages(**attributes: object) -> dict[str, Any]:
    return body(
        source={**BODY["attributes"]["source"], "messages": True}, **{"tables": ["public.orders"], **attributes}
    )


def specs(defs: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


class TestComponentTranslation(TestTranslation):
    """Every field of Dagster's asset attributes, on an asset of every kind."""

    def test_translation(
        self,
        attributes: dict[str, Any],
        assertion: Callable[[dg.AssetSpec], bool],
        key_modifier: Callable[[dg.AssetKey], dg.AssetKey] | None,
    ) -> None:
        if "key" in attributes:  # one for all, which is refused
            attributes = {**attributes, "key": "{{ kind }}/" + attributes["key"]}
        contents = with_messages(translation=attributes)
        if "partitions_def" in attributes:  # the one that is not the user's to choose
            with pytest.raises(ComponentTreeException) as caught:
                loaded(contents)
            assert any("change log: its partitions are the LSN windows" in message for message in chain(caught.value))
            return
        _, defs = loaded(contents)
        translated = specs(defs)
        assert len(translated) >= len(KINDS)
        if "key" not in attributes:
            keys = [dg.AssetKey.from_user_string(key) for key in KINDS]
            assert all(
                assertion(translated[(key_modifier(key) if key_modifier else key).to_user_string()]) for key in keys
            )


def test_templates_see_kind_table_and_spec() -> None:
    of_table = "{% if kind in ('table', 'snapshot', 'source') %}{{ table.table_name }}{% else %}none{% endif %}"
    tags = {"kind": "{{ kind }}", "of": of_table, "group": "{{ spec.group_name }}"}
    _, defs = loaded(with_messages(translation={"tags": tags}))
    translated = specs(defs)
    assert {key: spec.tags["kind"] for key, spec in translated.items()} == KINDS
    assert {key for key, spec in translated.items() if spec.tags["of"] == "orders"} == OF_ORDERS
    assert translated["shop/snapshot/public/orders"].tags["group"] == "shop_snapshots"


def test_a_template_that_names_a_table_where_there_is_none_is_told_what_there_is() -> None:
    with pytest.raises(ComponentTreeException) as caught:
        loaded(body(translation={"group_name": "{{ table.schema_name }}"}))
    said = "\n".join(chain(caught.value))
    assert "'table' not found in scope" in said
    assert "kind, spec" in said
    assert "attributes.translation.group_name" in said


def test_a_tables_own_translation_comes_after() -> None:
    table = {"name": "public.orders", "translation": {"group_name": "gold", "tags": {"kind": "{{ kind }}"}}}
    contents = body(tables=[table], translation={"group_name": "bronze", "owners": ["team:data"], "tags": {"a": "1"}})
    translated = specs(loaded(contents)[1])
    orders = translated.pop("shop/public/orders")
    assert (orders.group_name, orders.owners, orders.tags["a"], orders.tags["kind"]) == (
        "gold",
        ["team:data"],
        "1",
        "table",
    )
    assert {spec.group_name for spec in translated.values()} == {"bronze"}


def test_what_depends_on_a_key_follows_it() -> None:
    component, defs = loaded(body(translation={"key_prefix": "eu"}))
    deps = {key: {dep.asset_key.to_user_string() for dep in spec.deps} for key, spec in specs(defs).items()}
    assert deps == {f"eu/{key}": {f"eu/{dep}" for dep in of} for key, of in ASSETS.items()}
    assert component.asset_specs.change_log.key == dg.AssetKey(["eu", "shop", "change_log"])


def test_one_key_for_two_assets_is_refused() -> None:
    with pytest.raises(ComponentTreeException) as caught:
        loaded(body(translation={"key": "lake/{{ kind }}"}))
    said = 'pipeline shop: public.orders and sales."Order Items" have the asset key lake/snapshot in common'
    assert any(said in message for message in chain(caught.value))
    with pytest.raises(ComponentTreeException) as caught:
        loaded(body(translation={"key": "lake/{{ table.table_name if table is defined else kind }}"}))
    said = "pipeline shop: snapshot public.orders and source public.orders have the asset key lake/orders in common"
    assert any(said in message for message in chain(caught.value))


def test_pipelines_share_the_source_assets_that_have_one_key_after_translation(importable: Path) -> None:
    mirror = body(name="mirror", lake={"path": "/m"}, tables=["public.orders"], translation={"key_prefix": "eu"})
    past = body(name="past", lake={"path": "/p"}, tables=["public.orders"])
    deps = in_one_location(importable, mirror, past)
    assert {key for key in deps if "postgres" in key} == {
        "eu/postgres/shopdb/public/orders",
        "postgres/shopdb/public/orders",
    }
    past["attributes"]["translation"] = {"key_prefix": "eu"}
    deps = in_one_location(importable, past)
    assert {key for key in deps if "postgres" in key} == {"eu/postgres/shopdb/public/orders"}


def test_op_reaches_every_op() -> None:
    tags = {"team": "data", "dagster-k8s/config": {"container_config": {}}}
    retries = {"max_retries": 5, "delay": "30s", "backoff": "exponential", "jitter": "full"}
    _, defs = loaded(with_messages(op={"tags": tags, "pool": "spark", "retry_policy": retries}))
    ops = [asset.op for asset in defs.resolve_asset_graph().assets_defs if asset.is_executable]
    assert len(ops) >= 5
    for op in ops:
        assert op.tags["team"] == "data"
        if not op.name.endswith("slot_health"):  # it reads neither the slot nor a table
            assert op.pool == "spark"
        if not op.name.endswith(("slot_health", "verify_tables")):
            assert op.tags["postgres_cdc/pipeline"] == "shop"
            assert op.retry_policy == dg.RetryPolicy(
                max_retries=5, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL
            )
    [recover] = defs.resolve_job_def("shop_recover").nodes
    assert (recover.definition.pools, recover.definition.tags["team"]) == ({"spark"}, "data")


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (
            {"tags": {"postgres_cdc/pipeline": "x"}},
            "op.tags: postgres_cdc/pipeline: names that begin with postgres_cdc/",
        ),
        ({"tags": {"dagster/concurrency_key": "x"}}, "set op.pool instead"),
        ({"name": "x"}, "op.name: unknown field; allowed: tags, pool, retry_policy"),
        ({"backfill_policy": {"type": "single_run"}}, "op.backfill_policy: unknown field"),
        ({"retry_policy": {"backoff": "linear"}}, "op.retry_policy: backoff needs a delay, as in delay: 5s"),
        ({"retry_policy": {"max_retries": -1}}, "op.retry_policy.max_retries: expected 0 or more, not -1"),
    ],
)
def test_what_op_may_not_say(op: dict[str, Any], said: str) -> None:
    with pytest.raises(ComponentTreeException) as caught:
        loaded(body(op=op))
    assert any(said in message for message in chain(caught.value)), list(chain(caught.value))


def test_the_command_ignores_both(tmp_path: Path) -> None:
    file = tmp_path / "defs.yaml"
    file.write_text(yaml.safe_dump(body()))
    plain = load_pipeline(file)
    file.write_text(yaml.safe_dump(body(op={"tags": "{{ my_tags }}"}, translation="{{ my_attributes }}")))
    assert load_pipeline(file) == plain


@pytest.mark.postgres
def test_a_pipeline_under_keys_of_its_own_runs(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Every event is of a key that the user chose: Dagster refuses one that a step does not have."""
    shop = under_dagster(
        database,
        tmp_path / "lake",
        instance,
        None,
        translation=lambda spec, asset: spec.replace_attributes(key=["lake", asset.kind, *spec.key.path]),
        op={"pool": "one"},
    )
    [first] = shop.tick().run_requests or []
    assert shop.run(first).success
    database.execute("INSERT INTO orders VALUES (1000, 'new', 1)")
    [request] = shop.tick().run_requests or []
    assert shop.run(request).success
    written = {key.path[1] for key in instance.get_asset_keys()}
    assert written == {"table", "snapshot", "change_log"}
    assert {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()} == {"one": 1}
    orders = dg.AssetKey(["lake", "table", shop.name, "public", "orders"])
    record = instance.get_latest_materialization_event(orders)
    assert record is not None
    assert record.asset_materialization is not None
    lineage: Any = record.asset_materialization.metadata["dagster/column_lineage"].value
    [source] = lineage.deps_by_column["id"]
    assert source.asset_key == dg.AssetKey(["lake", "source", "postgres", shop.name, "public", "orders"])
