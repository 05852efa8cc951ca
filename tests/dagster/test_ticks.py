"""Ticks of sensor and schedule over a live slot, or none: what is asked for, told and added. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets import PostgresCdcComponent
from cdc_assets.assets.table_metadata import source_tables
from cdc_assets.configuration.health_model import HealthModel
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.fixtures.servers import Database

BEYOND = "FF0000/0-FF0000/100"


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> UnderDagster:
    """Small windows; slot and change log are there."""
    windows = {"max_bytes": "1KiB", "max_per_run": 100}
    shop = under_dagster(database, tmp_path / "lake", instance, None, windows=windows)
    prepare(shop.component.pipeline)
    return shop


def insert(shop: UnderDagster, first: int, number: int) -> None:
    shop.database.execute(*(f"INSERT INTO orders VALUES ({first + i}, 'new', 1)" for i in range(number)))


def captured(shop: UnderDagster, request: dg.RunRequest) -> None:
    """A run of the change log alone, which is what needs no Spark."""
    result = shop.defs.resolve_job_def(f"{shop.name}_sync").execute_in_process(
        instance=shop.instance, tags=dict(request.tags), asset_selection=[dg.AssetKey([shop.name, "change_log"])]
    )
    assert result.success


def until_caught_up(shop: UnderDagster) -> str:
    for _ in range(20):
        tick = shop.tick()
        if not tick.run_requests:
            return str(tick.skip_reason)
        captured(shop, tick.run_requests[0])
    raise AssertionError("runs ask for runs")


def last_run(shop: UnderDagster, job: str, status: dg.DagsterRunStatus, **tags: str) -> str:
    """Leave a run behind, as the daemon does."""
    definition = shop.defs.resolve_job_def(job)
    return shop.instance.create_run_for_job(definition, tags={**definition.tags, **tags}, status=status).run_id


def inserts(shop: UnderDagster) -> int:
    """As the UI sums them up: of each partition's newest materialisation."""
    keys = shop.partition_keys()
    return sum(shop.metadata("change_log", partition=key)["inserts"] for key in keys)


@pytest.mark.postgres
def test_a_key_beyond_the_wal_does_not_stop_the_sensor(shop: UnderDagster) -> None:
    insert(shop, 1000, 3)
    shop.tick()
    shop.instance.add_dynamic_partitions(f"{shop.name}_lsn", [BEYOND, "nonsense"])
    insert(shop, 2000, 3)
    said = until_caught_up(shop)
    assert "caught up" in said
    assert "2 partitions skipped, no LSN windows or beyond the WAL at" in said
    assert BEYOND in said
    assert sum(marker.changes for marker in ChangeLog(shop.component.pipeline.lake.change_log).markers()) == 6


@pytest.mark.postgres
def test_deleted_partitions_are_added_again_until_they_are_landed(shop: UnderDagster) -> None:
    insert(shop, 1000, 30)
    shop.tick()
    keys = shop.partition_keys()
    assert len(keys) > 3
    shop.instance.delete_dynamic_partition(f"{shop.name}_lsn", keys[1])
    assert "caught up" in until_caught_up(shop)
    windows = sorted(Window.parse(key) for key in shop.partition_keys())
    assert all(before.hi == after.lo for before, after in pairwise(windows))
    assert inserts(shop) == 30

    for key in shop.partition_keys():
        shop.instance.delete_dynamic_partition(f"{shop.name}_lsn", key)
    insert(shop, 2000, 1)
    assert "caught up" in until_caught_up(shop)
    assert min(Window.parse(key).lo for key in shop.partition_keys()) >= windows[-1].hi


@pytest.mark.postgres
def test_what_the_command_landed_across_keys_is_counted_once(shop: UnderDagster) -> None:
    insert(shop, 1000, 30)
    [request] = shop.tick().run_requests or []
    assert len(shop.partition_keys()) > 2
    large = shop.component.model_copy(update={"windows": type(shop.component.windows)()})
    assert len(capture(large.pipeline).landed) == 1
    captured(shop, request)
    until_caught_up(shop)
    assert inserts(shop) == 30


@pytest.mark.postgres
def test_keys_are_added_with_a_run_only(shop: UnderDagster) -> None:
    insert(shop, 1000, 1)
    run_id = last_run(shop, f"{shop.name}_sync", dg.DagsterRunStatus.STARTED)
    tick = shop.tick()
    assert f"run {run_id[:8]} is in progress" in str(tick.skip_reason)
    shop.instance.report_run_failed(shop.instance.get_run_by_id(run_id))  # type: ignore[arg-type]
    assert "the next try is in" in str(shop.tick().skip_reason)
    assert shop.partition_keys() == []


@pytest.mark.postgres
def test_a_source_that_is_away_is_told_once_and_its_return_too(shop: UnderDagster) -> None:
    def evaluations(tick: dg.SensorResult) -> list[bool]:
        return [event.passed for event in tick.asset_events if isinstance(event, dg.AssetCheckEvaluation)]

    before = shop.tick()
    assert evaluations(before) == [True]
    gone = shop.component.model_copy(deep=True)
    gone.source = gone.source.model_copy(update={"dsn": type(gone.source.dsn)("host=127.0.0.1 port=1 dbname=x")})
    away = UnderDagster(shop.database, gone, gone.definitions(), shop.instance, shop.lake, None)
    first = away.tick(before.cursor)
    assert evaluations(first) == [False]
    again = away.tick(first.cursor)
    assert evaluations(again) == []
    assert again.skip_reason == first.skip_reason
    assert evaluations(shop.tick(again.cursor or first.cursor)) == [True]


@pytest.mark.postgres
def test_thresholds_of_the_configuration_decide_what_is_told(shop: UnderDagster) -> None:
    def told(**health: Mapping[str, str]) -> tuple[dg.AssetObservation, dg.AssetCheckEvaluation]:
        component = shop.component.model_copy(update={"health": HealthModel.model_validate(health)})
        watched = UnderDagster(shop.database, component, component.definitions(), shop.instance, shop.lake, None)
        observation, evaluation = watched.tick().asset_events
        assert isinstance(observation, dg.AssetObservation)
        assert isinstance(evaluation, dg.AssetCheckEvaluation)
        return observation, evaluation

    insert(shop, 1000, 30)
    observation, evaluation = told()
    assert evaluation.passed
    numbers = {name: value.value for name, value in observation.metadata.items()}
    assert isinstance(numbers["lag_bytes"], int)
    assert numbers["lag_bytes"] > 1024
    assert {"lag_seconds", "restart_bytes", "free_replication_slots"} <= set(numbers)
    assert numbers["restart_distance_bytes"] == numbers["restart_bytes"], "the former name"

    _, evaluation = told(lag_bytes={"warn": "1KiB"})
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    _, evaluation = told(lag_bytes={"warn": "1KiB", "error": "2KiB"})
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "iB of WAL are not landed: run sync" in str(evaluation.description)
    assert "lag_bytes" in evaluation.metadata


@pytest.mark.postgres
def test_a_schedule_alone_limits_the_pool(shop: UnderDagster) -> None:
    schedule = shop.defs.resolve_schedule_def(f"{shop.name}_sync")
    schedule.evaluate_tick(dg.build_schedule_context(instance=shop.instance))
    limits = {pool.name: pool.limit for pool in shop.instance.event_log_storage.get_pool_limits()}
    assert limits[f"postgres_cdc_{shop.name}"] == 1


@pytest.fixture
def unmade(tmp_path: Path, instance: dg.DagsterInstance) -> UnderDagster:
    """No database, no lake: what the sensor finds before the first snapshot."""
    return without_database("shop", tmp_path, instance)


def without_database(name: str, lake: Path, instance: dg.DagsterInstance) -> UnderDagster:
    source = {"dsn": "host=127.0.0.1 port=1 dbname=x", "slot": "cdc"}
    component = PostgresCdcComponent.model_validate(
        {"name": name, "source": source, "lake": {"path": str(lake)}, "tables": ["public.orders"]}
    )
    return UnderDagster(None, component, component.definitions(), instance, lake, None)  # type: ignore[arg-type]


def test_the_first_snapshot_is_tried_again(unmade: UnderDagster) -> None:
    def asked() -> list[str | None]:
        return [request.job_name for request in unmade.tick().run_requests or []]

    assert asked() == ["shop_snapshot"]
    run_id = last_run(unmade, "shop_snapshot", dg.DagsterRunStatus.STARTED)
    assert asked() == []
    ended(unmade, run_id, timedelta(seconds=1))
    assert "the last 1 runs failed; the next try is in" in str(unmade.tick().skip_reason)
    ended(unmade, run_id, timedelta(seconds=31))
    assert asked() == ["shop_snapshot"]


def ended(shop: UnderDagster, run_id: str, ago: timedelta) -> None:
    """The run has failed, that long ago."""
    failure = dg.DagsterEvent(dg.DagsterEventType.RUN_FAILURE.value, "shop_snapshot")
    shop.instance.run_storage.handle_run_event(run_id, failure, datetime.now(UTC) - ago)


def test_pipelines_do_not_wait_for_each_other(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    eu, us = (without_database(name, tmp_path / name, instance) for name in ("eu", "us"))
    last_run(eu, "eu_snapshot", dg.DagsterRunStatus.STARTED)
    assert not eu.tick().run_requests
    assert us.tick().run_requests


def test_keys_that_cannot_be_asked_for_are_not_shown(unmade: UnderDagster) -> None:
    warnings: list[str] = []
    assert source_tables(unmade.component.pipeline, [QualifiedName("public", "orders")], warnings.append) == {}
    assert len(warnings) == 1
    assert "the tables' keys and comments are not shown" in warnings[0]
