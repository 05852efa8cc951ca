"""The messages table as an asset: there when messages are on, in the same runs and partitions as the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from deltalake import DeltaTable

from cdc_assets import PostgresCdcComponent
from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMIT = "SELECT pg_logical_emit_message({transactional}, 'outbox', '{content}')"


def messages(shop: UnderDagster) -> list[str]:
    table = DeltaTable(str(shop.lake / "tables" / "_messages")).to_pyarrow_table()
    ordered = table.sort_by([("commit_lsn_number", "ascending"), ("ordinal", "ascending")])
    return [content.decode() for content in ordered.column("content").to_pylist()]


def test_there_is_no_asset_without_messages() -> None:
    attributes = {"name": "shop", "lake": {"path": "/lake"}, "tables": ["public.orders"]}
    for wanted in (False, True):
        component = PostgresCdcComponent.model_validate(
            {**attributes, "source": {"dsn": "dbname=shopdb", "messages": wanted}}
        )
        specs = {spec.key.to_user_string(): spec for spec in component.definitions().resolve_all_asset_specs()}
        assert ("shop/_messages" in specs) == wanted
    spec = specs["shop/_messages"]
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == ["shop/change_log"]
    assert isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition)
    assert spec.partitions_def.name == "shop_lsn"
    assert spec.metadata["dagster/uri"] == "/lake/tables/_messages"


@pytest.mark.postgres
@pytest.mark.spark
def test_messages_are_materialised_with_the_tables(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    source = {"dsn": database.dsn, "messages": True}
    shop = under_dagster(database, tmp_path / "lake", instance, spark, source=source)
    for request in shop.tick().run_requests or []:
        assert shop.run(request).success
    # the loose one first: the server flushes it with the next commit only
    database.execute(
        EMIT.format(transactional=False, content="one"),
        "BEGIN; INSERT INTO orders VALUES (900, 'new', 1); "
        + EMIT.format(transactional=True, content="two")
        + "; COMMIT",
    )
    [request] = shop.tick().run_requests or []
    assert shop.run(request).success
    shop.assert_equal()
    assert messages(shop) == ["one", "two"]
    assert shop.green("_messages") == shop.green("public", "orders") == set(shop.partition_keys())
    # a range may have an older window without messages, of the WAL that the first run wrote; its last carries the run's
    told = shop.metadata("_messages", partition=shop.partition_keys()[-1])
    assert (told["messages"], told["rows_written"], told["outcome"]) == (2, 2, "applied")

    # the messages alone, of a range that is done: marked again, written once
    result = shop.defs.resolve_job_def(f"{shop.name}_sync").execute_in_process(
        instance=instance, tags=dict(request.tags), asset_selection=[dg.AssetKey([shop.name, "_messages"])]
    )
    assert result.success
    assert messages(shop) == ["one", "two"]
