"""``automation:``, what starts the runs: what is defined, what runs by default, and that something runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException

from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.dagster.shop_component import body, chain, checker, loaded
from tests.fixtures.servers import Database

pytestmark = pytest.mark.usefixtures("shop_dsn")

RUNNING, STOPPED = "RUNNING", "STOPPED"
SCHEDULES = {"shop_sync": STOPPED, "shop_maintenance": STOPPED, "shop_verify": STOPPED}


def started(defs: dg.Definitions) -> tuple[dict[str, str], dict[str, str]]:
    """Sensors and schedules, with what they are after deployment."""
    repository = defs.get_repository_def()
    return (
        {each.name: each.default_status.value for each in repository.sensor_defs},
        {each.name: each.default_status.value for each in repository.schedule_defs},
    )


@pytest.mark.parametrize(
    ("automation", "sensors", "schedules"),
    [
        ("sensor", {"shop_slot_lag": STOPPED}, SCHEDULES),
        ({"sensor": "2m"}, {"shop_slot_lag": STOPPED}, SCHEDULES),
        (
            {"default_status": "running"},
            {"shop_slot_lag": RUNNING},
            {**SCHEDULES, "shop_maintenance": RUNNING},
        ),
        ("schedule", {}, SCHEDULES),
        (
            {"schedule": "0 * * * *", "default_status": "running"},
            {},
            {**SCHEDULES, "shop_sync": RUNNING, "shop_maintenance": RUNNING},
        ),
        ("none", {}, {}),
    ],
)
def test_what_there_is_and_what_runs(automation: object, sensors: dict[str, str], schedules: dict[str, str]) -> None:
    contents = body(automation=automation)
    assert checker().is_valid(contents["attributes"])
    _, defs = loaded(contents)
    assert started(defs) == (sensors, schedules)
    assert {"shop_sync", "shop_snapshot", "shop_recover"} <= {job.name for job in defs.resolve_all_job_defs()}


def test_without_the_field_nothing_is_other_than_with_a_sensor() -> None:
    assert started(loaded(body())[1]) == started(loaded(body(automation="sensor"))[1])


def test_how_often() -> None:
    _, defs = loaded(body(automation={"sensor": "2m"}))
    assert defs.resolve_sensor_def("shop_slot_lag").minimum_interval_seconds == 120
    _, defs = loaded(body(automation={"schedule": "0 * * * *"}))
    assert defs.resolve_schedule_def("shop_sync").cron_schedule == "0 * * * *"
    for default in (loaded(body(automation="schedule"))[1], loaded(body())[1]):
        assert default.resolve_schedule_def("shop_sync").cron_schedule == "*/5 * * * *"


@pytest.mark.parametrize(
    ("automation", "said"),
    [
        ("sensor", "the sensor shop_slot_lag adds them; turn it on."),
        ({"default_status": "running"}, "the sensor shop_slot_lag adds them."),
        ("schedule", "the schedule shop_sync adds them; turn it on."),
        ("none", "Its partitions are LSN windows."),
    ],
)
def test_descriptions_name_what_there_is(automation: object, said: str) -> None:
    _, defs = loaded(body(automation=automation))
    described = [spec.description or "" for spec in defs.resolve_all_asset_specs() if spec.partitions_def is not None]
    assert len(described) == 3
    assert all(text.endswith(said) for text in described)
    if automation in ("schedule", "none"):
        assert not any("sensor" in (spec.description or "") for spec in defs.resolve_all_asset_specs())


@pytest.mark.parametrize(
    ("automation", "said"),
    [
        ("senser", "automation: expected sensor, schedule, none or a mapping with sensor or schedule"),
        ({"sensor": "2m", "schedule": "@daily"}, "automation: sensor and schedule exclude each other"),
        ({"schedule": "5 minutes"}, "automation.schedule: expected a cron expression of five fields, not 5 minutes"),
        ({"default_status": "started"}, "automation.default_status: expected 'stopped' or 'running', not started"),
        ({"cron": "@daily"}, "automation.cron: unknown field"),
    ],
)
def test_what_is_refused(automation: Any, said: str) -> None:
    with pytest.raises(ComponentTreeException) as caught:
        loaded(body(automation=automation))
    assert any(said in message for message in chain(caught.value)), list(chain(caught.value))


def under(automation: object, database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> UnderDagster:
    """With slot and snapshots: the job that takes them exists whatever starts the runs."""
    shop = under_dagster(database, tmp_path / "lake", instance, None, automation=automation)
    assert shop.run(dg.RunRequest(job_name=f"{shop.name}_snapshot")).success
    database.execute("INSERT INTO orders VALUES (1000, 'new', 1)")
    return shop


@pytest.mark.postgres
def test_a_tick_of_the_schedule_alone(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    shop = under("schedule", database, tmp_path, instance)
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=datetime.now(UTC))
    request = shop.defs.resolve_schedule_def(f"{shop.name}_sync")(context)
    assert isinstance(request, dg.RunRequest)
    assert shop.run(request).success
    assert shop.green("public", "orders") == set(shop.partition_keys()) != set()
    assert shop.metadata("public", "orders")["dagster/row_count"] == 101


@pytest.mark.postgres
def test_from_outside(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Whoever adds a window and launches the job over it needs nothing else."""
    shop = under("none", database, tmp_path, instance)
    [(confirmed, flushed)] = database.execute(
        "SELECT confirmed_flush_lsn::text, pg_current_wal_flush_lsn()::text FROM pg_replication_slots"
        f" WHERE slot_name = '{shop.name}'"
    )
    window = f"{confirmed}-{flushed}"
    instance.add_dynamic_partitions(f"{shop.name}_lsn", [window])
    sync = shop.defs.resolve_job_def(f"{shop.name}_sync")
    assert sync.execute_in_process(instance=instance, partition_key=window).success
    assert shop.green("public", "orders") == {window}
    assert shop.metadata("public", "orders")["dagster/row_count"] == 101
