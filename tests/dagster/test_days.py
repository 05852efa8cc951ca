"""Assets of days: complete by themselves, read by assets downstream, backfilled by date. No Spark.

Commit times cannot be chosen, so the seven days end at instants between transactions of this test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

import cdc_assets
from cdc_assets.automation import run_planning
from cdc_assets.calendars import Calendar
from cdc_assets.definitions import build_definitions
from cdc_assets.shared_sources import NOTHING_ELSEWHERE
from spark_jobs.capture import period_ends
from tests.dagster.pipeline_under_dagster import TABLES, UnderDagster, under_dagster
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

BERLIN = dg.DailyPartitionsDefinition(start_date="2026-11-01", timezone="Europe/Berlin")
KEYS = BERLIN.get_partition_keys(current_time=datetime(2026, 11, 9, tzinfo=UTC))[:7]


@dataclass(frozen=True)
class Recorded:
    """Days that end when the test says so."""

    recorded: dict[str, datetime]

    def ends(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return (end for end in self.recorded.values() if after < end <= until)


@dataclass(frozen=True)
class RecordedDays(Calendar):
    recorded: dict[str, datetime] = field(default_factory=dict)

    def end_of(self, key: str) -> datetime:
        return self.recorded[key]

    def key_that_ends(self, at: datetime) -> str | None:
        return next((key for key, end in self.recorded.items() if end == at), None)


@dataclass(frozen=True)
class Shop:
    under: UnderDagster
    days: RecordedDays
    defs: dg.Definitions

    def change(self) -> None:
        self.under.database.execute(
            "UPDATE orders SET amount = amount + 1 WHERE id % 10 = 0",
            "INSERT INTO items SELECT max(order_id) + 1, 1, 'x' FROM items",
        )

    def end_day(self) -> dict[str, list[tuple[Any, ...]]]:
        """Now, by the source's clock; with a copy of the source."""
        ((now,),) = self.under.database.execute("SELECT clock_timestamp()")
        assert isinstance(now, datetime)
        self.days.recorded[KEYS[len(self.days.recorded)]] = now.astimezone(UTC)
        return {table: sorted(self.under.database.execute(f"SELECT * FROM {table}")) for table in TABLES}

    def sync(self) -> None:
        for request in self.under.tick().run_requests or []:
            assert self.under.run(request).success


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance) -> Shop:
    partitions = {"daily": {"timezone": "Europe/Berlin", "start": "2026-11-01"}}
    under = under_dagster(database, tmp_path / "lake", instance, None, time_partitions=partitions)
    blueprint = under.component._blueprint()
    recorded: dict[str, datetime] = {}
    days = RecordedDays(BERLIN, Recorded(recorded), recorded)
    blueprint = replace(
        blueprint, pipeline=replace(blueprint.pipeline, periods=(days.periods,)), calendars={"daily": days}
    )
    defs = build_definitions(blueprint, under.component.execute, NOTHING_ELSEWHERE, bring_resource=True)
    shop = Shop(replace(under, defs=defs), days, defs)
    shop.sync()
    shop.change()
    shop.sync()
    return shop


def rows_at(found: cdc_assets.TableAt) -> list[tuple[Any, ...]]:
    table = DeltaTable(found.path, version=found.version, storage_options=dict(found.storage_options or {}))
    return sorted(tuple(row.values()) for row in table.to_pyarrow_table().to_pylist())


def test_a_backfill_of_seven_days_reads_seven_states(shop: Shop) -> None:
    under, read = shop.under, {}

    @dg.asset(
        partitions_def=BERLIN,
        deps=[dg.AssetKey([under.name, "daily"])],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def mine(context) -> None:  # type: ignore[no-untyped-def]  # Dagster refuses postponed annotations here
        read[tuple(context.partition_keys)] = {table: rows_at(cdc_assets.at(context, table)) for table in TABLES}

    def built(*keys: str) -> dg.ExecuteInProcessResult:
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        job = dg.Definitions.merge(shop.defs, dg.Definitions(assets=[mine])).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=under.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=tags if len(keys) > 1 else None,
            asset_selection=[mine.key],
            raise_on_error=False,
        )

    copies = {}
    for key in KEYS:
        shop.change()
        copies[key] = shop.end_day()
        if key in KEYS[2:4]:
            shop.change()
            shop.sync()
    shop.change()
    shop.sync()
    assert under.green("daily") == {*KEYS[:4]}, "those that were complete when the sensor last looked"
    assert told(built(KEYS[4])) == f"{under.name}/daily is not materialised for {KEYS[4]}: the day is not complete"
    under.tick()
    assert under.green("daily") == {*KEYS}
    seen = under.metadata("daily", partition=KEYS[0])
    assert seen["end"] == shop.days.recorded[KEYS[0]].timestamp()
    assert {*seen["postgres_cdc/cut"]["tables"]} == {*TABLES}
    assert not [event for event in under.tick().asset_events if isinstance(event, dg.AssetMaterialization)]

    for key in KEYS:
        assert built(key).success
    assert read == {(key,): copy for key, copy in copies.items()}
    assert built(*KEYS[1:4]).success
    assert read[KEYS[1], KEYS[2], KEYS[3]] == copies[KEYS[3]], "at the end of the last of them"


def test_by_hand(shop: Shop) -> None:
    """What is complete is materialised, also beside what is not."""
    under, daily = shop.under, dg.AssetKey([shop.under.name, "daily"])
    shop.change()
    shop.end_day()
    shop.change()
    for request in under.tick().run_requests or []:
        assert under.run(request).success
    shop.end_day()
    assert under.green("daily") == set()
    result = shop.defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=under.instance,
        tags={"dagster/asset_partition_range_start": KEYS[0], "dagster/asset_partition_range_end": KEYS[1]},
        asset_selection=[daily],
        raise_on_error=False,
    )
    end = shop.days.recorded[KEYS[1]].isoformat()
    assert told(result).startswith(f"{KEYS[1]}: what was committed before {end} is not captured yet up to ")
    assert under.green("daily") == {KEYS[0]}


def test_a_quiet_day_gets_a_run_of_its_own(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_planning, "_QUIET", timedelta(0))
    monkeypatch.setattr(period_ends, "_COMMITTING", timedelta(0))
    under = shop.under
    under.until_quiet()
    shop.end_day()
    (request,) = under.tick().run_requests or []
    assert under.run(request).success
    assert "caught up" in under.until_quiet()
    assert under.green("daily") == {KEYS[0]}


def told(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    assert failure.step_failure_data.user_failure_data is not None
    return str(failure.step_failure_data.user_failure_data.description)
