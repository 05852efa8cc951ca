"""Sensor, schedule, runs and backfills against a live server: what Dagster shows is what the lake holds."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import psycopg
import pytest
from psycopg import sql

from cdc_assets.automation.run_planning import range_tags
from cdc_assets.component import PostgresCdcComponent
from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.prepare import prepare
from spark_jobs.run import Run
from tests.dagster.pipeline_under_dagster import TABLES, UnderDagster, typed_in_the_ui, under_dagster
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> UnderDagster:
    return under_dagster(database, tmp_path / "lake", instance, spark)


@pytest.fixture
def followed(shop: UnderDagster) -> UnderDagster:
    """Slot and first snapshots are there, asked for by the first tick."""
    shop.database.execute("COMMENT ON TABLE orders IS 'what was sold'", "COMMENT ON COLUMN orders.amount IS 'in euros'")
    first = shop.tick()
    assert [request.job_name for request in first.run_requests or []] == [f"{shop.name}_snapshot"]
    assert shop.run((first.run_requests or [])[0]).success
    return shop


def change(shop: UnderDagster, number: int) -> None:
    shop.database.execute(
        f"INSERT INTO orders VALUES ({1000 + number}, 'new', 1)",
        f"UPDATE orders SET amount = {number} WHERE id = {number}",
        f"DELETE FROM orders WHERE id = {50 + number}",
    )


def requested(result: dg.SensorResult) -> dg.RunRequest:
    assert len(result.run_requests or []) == 1, result.skip_reason
    return (result.run_requests or [])[0]


def range_of(request: dg.RunRequest) -> tuple[str, str]:
    return request.tags["dagster/asset_partition_range_start"], request.tags["dagster/asset_partition_range_end"]


def test_from_nothing_to_caught_up(followed: UnderDagster) -> None:
    change(followed, 1)
    tick = followed.tick()
    request = requested(tick)
    observed = [event for event in tick.asset_events if isinstance(event, dg.AssetObservation)]
    lag = observed[0].metadata["lag_bytes"].value
    assert isinstance(lag, int)
    assert lag > 0
    assert followed.run(request).success
    followed.assert_equal()
    assert followed.green("public", "orders") == followed.green("public", "items") == set(followed.partition_keys())
    assert followed.green("change_log") == set(followed.partition_keys())

    log, orders = followed.metadata("change_log"), followed.metadata("public", "orders")
    assert (log["inserts"], log["updates"], log["deletes"], log["transactions"]) == (1, 1, 1, 3)
    assert (orders["inserts"], orders["updates"], orders["deletes"]) == (1, 1, 1)
    assert orders["dagster/row_count"] == 100
    assert orders["outcome"] == "applied"
    columns = {column.name: column for column in orders["dagster/column_schema"].columns}
    assert {name: column.type for name, column in columns.items()} == {
        "id": "bigint",
        "customer": "string",
        "amount": "decimal(10,2)",
    }
    assert columns["id"].constraints.unique
    assert orders["comment"] == "what was sold"
    assert [column.description for column in columns.values()] == [None, None, "in euros"]
    assert [round(of["run_seconds"], 1) for of in (log, orders)] == [log["run_seconds"], orders["run_seconds"]]
    assert time.time() - 600 < log["first_commit"] <= log["last_commit"] <= time.time()
    assert followed.metadata("public", "items")["outcome"] == "nothing to apply"
    assert followed.metadata("public", "items")["dagster/row_count"] == 100

    assert "caught up" in followed.until_quiet()


def test_only_a_snapshot_that_is_asked_for_is_taken_again(followed: UnderDagster) -> None:
    """ "Materialize all" must not read every table anew, and must not skip the tables either."""
    change(followed, 1)
    request = requested(followed.tick())
    versions = _snapshots(followed)
    job, everything = followed.defs.resolve_implicit_global_asset_job_def(), f"{followed.name}_snapshot"
    assert followed.run(dg.RunRequest(job_name=everything)).success
    all_at_once = [key for key in job.asset_layer.selected_asset_keys if key.path[-1] != "maintenance"]
    assert job.execute_in_process(
        instance=followed.instance, tags=dict(request.tags), asset_selection=all_at_once
    ).success
    assert _snapshots(followed) == versions
    assert followed.metadata("snapshot", "public", "orders")["kept"]
    followed.assert_equal()  # the tables were not skipped

    one = dg.AssetKey([followed.name, "snapshot", "public", "orders"])
    assert job.execute_in_process(instance=followed.instance, asset_selection=[one]).success
    again = _snapshots(followed)
    assert again["orders"] > versions["orders"]
    assert again["items"] == versions["items"]
    forced = {"ops": {f"{followed.name}_snapshots": {"config": {"force": True}}}}
    assert followed.defs.resolve_job_def(everything).execute_in_process(forced, instance=followed.instance).success
    assert _snapshots(followed)["items"] > versions["items"]
    followed.assert_equal()


def _snapshots(shop: UnderDagster) -> dict[str, str]:
    """The LSN of each table's snapshot, in the form that sorts."""
    states = prepare(shop.component.pipeline).ledger.states
    return {name.relname: state.snapshot_lsn.key for name, state in states.items()}


def test_checks_record_health_and_watermark(followed: UnderDagster) -> None:
    change(followed, 1)
    result = followed.run(requested(followed.tick()))
    evaluations = {str(check.asset_check_key.to_user_string()): check for check in result.get_asset_check_evaluations()}
    assert evaluations[f"{followed.name}/public/orders:watermark_is_last_window"].passed
    assert evaluations[f"{followed.name}/public/items:watermark_is_last_window"].passed
    events = [event for event in followed.tick().asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    assert [event.passed for event in events] == [True]


def test_watermarks_are_checked_alone_without_a_partition(followed: UnderDagster) -> None:
    """As the UI does when a check is executed. What is landed and not applied yet is not marked, so all is well."""
    change(followed, 1)
    followed.run(requested(followed.tick()))
    change(followed, 2)
    landed = capture(followed.component.pipeline).landed
    keys = {dg.AssetCheckKey(dg.AssetKey([followed.name, "public", "orders"]), "watermark_is_last_window")}
    job = followed.defs.resolve_implicit_global_asset_job_def().get_subset(asset_check_selection=keys)
    checked = job.execute_in_process(instance=followed.instance).get_asset_check_evaluations()
    assert [(each.asset_check_key, each.passed) for each in checked] == [(key, True) for key in keys]
    # marked by hand, not applied
    lie = dg.AssetMaterialization([followed.name, "public", "orders"], partition=landed[-1].window.key)
    followed.instance.report_runless_asset_event(lie)
    [checked_again] = job.execute_in_process(instance=followed.instance).get_asset_check_evaluations()
    assert not checked_again.passed
    assert checked_again.metadata["changes_missing"].value == 3


def test_row_counts_are_never_stale(followed: UnderDagster, spark: SparkSession) -> None:
    """The command applies between two runs: the second has nothing to apply, and tells the table as it is."""
    change(followed, 1)
    followed.run(requested(followed.tick()))
    assert followed.metadata("public", "items")["dagster/row_count"] == 100
    followed.database.execute("INSERT INTO items VALUES (500, 1, 'more')")
    capture(followed.component.pipeline)
    apply(Run(followed.component.pipeline, lambda: spark))
    followed.run(requested(followed.tick()))
    items = followed.metadata("public", "items", partition=followed.partition_keys()[-1])
    assert (items["outcome"], items["dagster/row_count"]) == ("nothing to apply", 101)


def test_many_windows_are_one_run_with_numbers_of_their_own(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    shop = under_dagster(database, tmp_path / "lake", instance, spark, windows={"max_bytes": "1KiB", "max_per_run": 3})
    shop.run(requested(shop.tick()))
    for number in range(1, 20):
        change(shop, number)
    end = Lsn.parse(str(database.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0]))
    runs, landed = 0, Lsn(0)
    while landed < end:  # not until nothing is left: an autovacuum may write a hundred windows more
        request = requested(shop.tick())
        first, last = range_of(request)
        keys = shop.partition_keys()
        assert keys == sorted(keys, key=Window.parse)
        assert keys.index(last) - keys.index(first) < 3
        assert shop.run(request).success
        runs, landed = runs + 1, Window.parse(last).hi
    assert runs > 1
    shop.assert_equal()
    windows = [Window.parse(key) for key in shop.partition_keys()]
    assert all(before.hi == after.lo for before, after in pairwise(windows))
    assert shop.green("public", "orders") == set(shop.partition_keys())
    events = shop.instance.fetch_materializations(dg.AssetKey([shop.name, "change_log"]), limit=200).records
    inserts = {
        event.partition_key: event.asset_materialization.metadata["inserts"].value
        for event in events
        if event.asset_materialization is not None
    }
    assert sum(number for number in inserts.values() if isinstance(number, int)) == 19
    assert len(set(inserts.values())) > 1


def test_replayed_range_changes_nothing(followed: UnderDagster) -> None:
    for number in (1, 2, 3):
        change(followed, number)
        followed.run(requested(followed.tick()))
    keys = followed.partition_keys()
    before = followed.metadata("public", "orders")
    assert followed.run(dg.RunRequest(tags=range_tags((keys[0], keys[-1])))).success
    followed.assert_equal()
    after = followed.metadata("public", "orders", partition=keys[-1])
    assert after["outcome"] in ("already applied", "nothing to apply")
    assert after["dagster/row_count"] == before["dagster/row_count"]


def test_a_backfill_of_old_and_new_windows_applies_the_new_ones_once(followed: UnderDagster) -> None:
    """As `postgres-cdc replay` of the same range does."""
    change(followed, 1)
    followed.run(requested(followed.tick()))
    change(followed, 2)
    followed.run(requested(followed.tick()))
    version = followed.metadata("public", "orders", partition=followed.partition_keys()[-1])["delta_version"]
    change(followed, 3)
    typed_in_the_ui(followed)
    capture(followed.component.pipeline)  # landed, and not applied
    keys = followed.partition_keys()
    assert len(keys) == 3
    assert followed.run(dg.RunRequest(tags=range_tags((keys[0], keys[-1])))).success
    followed.assert_equal()
    mixed = followed.metadata("public", "orders", partition=keys[-1])
    assert (mixed["outcome"], mixed["delta_version"]) == ("applied", version + 1)
    for old in keys[:2]:
        assert followed.run(dg.RunRequest(tags=range_tags((old, old)))).success
        assert followed.metadata("public", "orders", partition=old)["outcome"] in (
            "already applied",
            "nothing to apply",
        )
    followed.assert_equal()
    assert followed.green("public", "orders") == set(keys)


def test_what_the_command_landed_is_recognised(followed: UnderDagster, spark: SparkSession) -> None:
    pipeline = followed.component.pipeline
    change(followed, 1)
    planned = requested(followed.tick())  # its partition is there, and the command is quicker
    change(followed, 2)
    landed = capture(pipeline).landed
    apply(Run(pipeline, lambda: spark))
    assert followed.run(planned).success
    request = requested(followed.tick())
    assert followed.run(request).success
    # nothing was read twice, nothing is left; a checkpoint or autovacuum may write WAL at any time, hence a window more
    assert sum(marker.changes for marker in capture(pipeline).landed) == 0
    followed.assert_equal()
    assert followed.green("public", "orders") == set(followed.partition_keys())
    assert landed[-1].window.hi in {Window.parse(key).hi for key in followed.partition_keys()}


def test_a_window_that_the_command_landed_across_the_partitions_end_is_applied_whole(followed: UnderDagster) -> None:
    """A green partition means that its changes are in the tables: half of a window cannot be applied."""
    change(followed, 1)
    planned = requested(followed.tick())
    change(followed, 2)
    (landed,) = capture(followed.component.pipeline).landed
    assert landed.window.hi > Window.parse(followed.partition_keys()[-1]).hi
    result = followed.run(planned)
    followed.assert_equal()
    assert followed.green("public", "orders") == set(followed.partition_keys())
    checks = [check for check in result.get_asset_check_evaluations() if check.check_name == "watermark_is_last_window"]
    assert [check.metadata["last_window"].value for check in checks] == [landed.ordinal] * len(TABLES)
    assert all(check.passed for check in checks)


def test_killed_run_is_made_good(followed: UnderDagster) -> None:
    """A run that vanished after landing: its partitions go green with the next run."""
    change(followed, 1)
    lost = requested(followed.tick())
    capture(followed.component.pipeline)
    followed.instance.create_run_for_job(
        followed.defs.resolve_job_def(f"{followed.name}_sync"),
        tags={**lost.tags, "postgres_cdc/pipeline": followed.name},
        status=dg.DagsterRunStatus.FAILURE,
    )
    change(followed, 2)
    waiting = followed.tick()
    assert not waiting.run_requests
    assert "the next try is in" in str(waiting.skip_reason)
    key = typed_in_the_ui(followed)
    assert followed.run(dg.RunRequest(tags=range_tags((key, key)))).success
    followed.assert_equal()
    assert len(followed.partition_keys()) == 2
    assert followed.green("public", "orders") == followed.green("change_log") == set(followed.partition_keys())


def test_never_two_runs_at_a_time(followed: UnderDagster) -> None:
    change(followed, 1)
    request = requested(followed.tick())
    run = followed.instance.create_run_for_job(
        followed.defs.resolve_job_def(f"{followed.name}_sync"),
        tags={**request.tags, "postgres_cdc/pipeline": followed.name},
        status=dg.DagsterRunStatus.STARTED,
    )
    change(followed, 2)
    tick = followed.tick()
    assert not tick.run_requests
    assert run.run_id[:8] in str(tick.skip_reason)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("0/16B3748", "not an LSN window: '0/16B3748' (expected START-END"),
        ("0/FF000000-0/FE000000", "not an LSN window"),
        ("FF0000/FF000000-FF0000/FF100000", "leaves a gap: the change log ends at"),
    ],
)
def test_hand_typed_key_is_refused(followed: UnderDagster, key: str, said: str) -> None:
    followed.instance.add_dynamic_partitions(f"{followed.name}_lsn", [key])
    result = followed.defs.resolve_job_def(f"{followed.name}_sync").execute_in_process(
        instance=followed.instance, partition_key=key, raise_on_error=False
    )
    assert not result.success
    [failure] = result.get_step_failure_events()[:1]
    assert said in str(failure.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]
    assert followed.green("change_log") == set()


def test_a_run_without_partitions_is_told_what_it_lacks(followed: UnderDagster) -> None:
    """As `dg launch --job` starts it."""
    result = followed.defs.resolve_job_def(f"{followed.name}_sync").execute_in_process(
        instance=followed.instance, raise_on_error=False
    )
    assert not result.success
    for failure in result.get_step_failure_events():
        said = str(failure.step_failure_data.user_failure_data.description)  # type: ignore[union-attr]
        assert said.startswith("the run has no partitions, which are the windows to capture and apply: select some")


def test_tables_alone_are_refused_before_their_windows_are_landed(followed: UnderDagster) -> None:
    change(followed, 1)
    request = requested(followed.tick())
    result = followed.defs.resolve_job_def(f"{followed.name}_sync").execute_in_process(
        instance=followed.instance,
        tags=dict(request.tags),
        asset_selection=[dg.AssetKey([followed.name, "public", "orders"])],
        raise_on_error=False,
    )
    assert not result.success
    data = result.get_step_failure_events()[0].step_failure_data.user_failure_data
    assert data is not None
    assert "is not landed" in str(data.description)
    assert followed.green("public", "orders") == set()


def test_stopped_table_stops_alone(followed: UnderDagster) -> None:
    followed.database.execute(
        "INSERT INTO items VALUES (500, 1, 'more')",
        "UPDATE orders SET amount = 'NaN' WHERE id = 7",  # no decimal holds it
    )
    request = requested(followed.tick())
    result = followed.run(request, raise_on_error=False)
    assert not result.success
    followed.assert_equal(["public.items"])
    assert followed.green("public", "items") == followed.green("change_log") == set(followed.partition_keys())
    assert followed.green("public", "orders") == set()
    data = result.get_step_failure_events()[0].step_failure_data.user_failure_data
    assert data is not None
    assert "public.orders" in str(data.description)
    assert "public.items" not in str(data.description)
    what, hint = str(data.description).splitlines()  # one line each
    assert what
    assert hint.startswith("hint: ")


def test_another_mode_is_made_from_the_change_log(followed: UnderDagster) -> None:
    change(followed, 1)
    followed.run(requested(followed.tick()))
    attributes = followed.component.model_dump(include={"name", "lake"}) | {"source": {"dsn": followed.database.dsn}}
    attributes["tables"] = [{"name": "public.orders", "mode": "history"}, "public.items"]
    component = PostgresCdcComponent.model_validate(attributes)
    shop = replace(followed, component=component, defs=component.definitions())
    change(shop, 2)
    shop.run(requested(shop.tick()))
    last = shop.partition_keys()[-1]
    known = shop.metadata("public", "orders", partition=last)
    assert known["mode_changed"].startswith("mirror to history, rebuilt from the change log, known since ")
    assert "snapshot_reason" not in known
    assert "mode_changed" not in shop.metadata("public", "items", partition=last)
    shop.assert_equal(["public.items"])
    current = [row[:3] for row in shop.lake_rows("public.orders") if row[-1] is None]
    assert current == sorted(shop.database.execute("SELECT * FROM orders"))
    assert len(shop.lake_rows("public.orders")) > len(current)


def test_a_table_that_changed_without_an_event_is_read_again(followed: UnderDagster) -> None:
    change(followed, 1)
    followed.run(requested(followed.tick()))
    followed.database.execute("ALTER TABLE orders ALTER amount TYPE numeric(10,2) USING amount + 1")
    change(followed, 2)
    followed.run(requested(followed.tick()))
    followed.assert_equal()
    reason = followed.metadata("public", "orders", partition=followed.partition_keys()[-1])["snapshot_reason"]
    assert reason.startswith("public.orders needs a re-snapshot: it was rewritten by DDL (seen with window")
    assert "snapshot_reason" not in followed.metadata("public", "items", partition=followed.partition_keys()[-1])


def test_a_partition_that_comes_is_read_alone(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    database.execute(
        "CREATE TABLE days (day date PRIMARY KEY, t text) PARTITION BY RANGE (day)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
        "INSERT INTO days SELECT '2024-01-01'::date + g, 'x' FROM generate_series(0, 30) g",
    )
    tables = [*TABLES, "public.days"]
    shop = under_dagster(database, tmp_path / "lake", instance, spark, tables=tables)
    shop.until_quiet()
    database.execute(
        "CREATE TABLE days_2 (LIKE days INCLUDING ALL)",
        "INSERT INTO days_2 VALUES ('2024-02-03', 'unseen')",
        "ALTER TABLE days ATTACH PARTITION days_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
        "UPDATE days SET t = 'seen' WHERE day = '2024-01-05'",
    )
    change(shop, 1)
    request = requested(shop.tick())
    assert shop.run(request).success
    told = shop.metadata("public", "days", partition=range_of(request)[1])
    assert (told["partitions_read"], told["partition_rows"]) == ("partition public.days_2 was attached", 1)
    assert "snapshot_reason" not in told
    change(shop, 2)
    assert "caught up" in shop.until_quiet()
    shop.assert_equal(tables)


def test_table_added_later_is_snapshotted_on_the_way(
    followed: UnderDagster, database: Database, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    database.execute("CREATE TABLE late (id int PRIMARY KEY, what text)", "INSERT INTO late VALUES (1, 'a')")
    component = followed.component.model_copy(
        update={"tables": [*(followed.component.tables or ()), *_settings("public.late")]}
    )
    more = UnderDagster(database, component, component.definitions(), instance, followed.lake, spark)
    change(followed, 1)
    more.run(requested(more.tick()))
    assert more.metadata("snapshot", "public", "late")["rows"] == 1
    database.execute("INSERT INTO late VALUES (2, 'b')")
    more.run(requested(more.tick()))
    more.assert_equal(["public.orders", "public.items", "public.late"])


def _settings(name: str) -> list[object]:
    from cdc_assets.translation import TableSettings

    return [TableSettings(name=name)]


def test_schedule_catches_up(followed: UnderDagster) -> None:
    change(followed, 1)
    schedule = followed.defs.resolve_schedule_def(f"{followed.name}_sync")
    context = dg.build_schedule_context(instance=followed.instance)
    data = schedule.evaluate_tick(context)
    [request] = data.run_requests or []
    assert followed.run(request).success
    followed.assert_equal()
    for _ in range(5):  # as in until_quiet: the server writes a little WAL of its own now and then
        data = schedule.evaluate_tick(context)
        if not data.run_requests:
            break
        assert followed.run(data.run_requests[0]).success
    assert "caught up" in str(data.skip_message)


def test_unreachable_source_is_told_by_check_and_tick(followed: UnderDagster) -> None:
    gone = followed.component.model_copy(deep=True)
    gone.source = gone.source.model_copy(update={"dsn": type(gone.source.dsn)("host=127.0.0.1 port=1 dbname=x")})
    away = UnderDagster(followed.database, gone, gone.definitions(), followed.instance, followed.lake, followed.spark)
    tick = away.tick()
    assert not tick.run_requests
    assert "\n" not in str(tick.skip_reason)
    [event] = tick.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert not event.passed


def test_pool_has_a_limit_of_its_own_after_the_first_tick(followed: UnderDagster) -> None:
    followed.tick()
    limits = {pool.name: pool.limit for pool in followed.instance.event_log_storage.get_pool_limits()}
    assert limits[f"postgres_cdc_{followed.name}"] == 1


def test_windows_start_at_the_slot(followed: UnderDagster) -> None:
    change(followed, 1)
    followed.tick()
    confirmed = followed.database.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
    assert Window.parse(followed.partition_keys()[0]).lo <= Lsn.parse(str(confirmed[0][0]))


class HandedIn(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A user's own resource: anything with a ``spark_session``."""

    def spark_session_asked(self) -> None:
        asked.append("spark")

    @property
    def spark_session(self) -> object:
        from pyspark.sql import SparkSession

        self.spark_session_asked()
        return SparkSession.active()


asked: list[str] = []


def test_own_spark_resource_is_used(
    database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    shop = under_dagster(
        database, tmp_path / "lake", instance, spark, merge={"engine": "spark"}, spark={"resource": "mine"}
    )
    defs = dg.Definitions.merge(shop.component.definitions(), dg.Definitions(resources={"mine": HandedIn()}))
    shop = UnderDagster(database, shop.component, defs, instance, shop.lake, spark)
    shop.run(requested(shop.tick()))
    change(shop, 1)
    shop.run(requested(shop.tick()))
    assert asked
    shop.assert_equal()


def allow_connections(server_dsn: str, name: str, *, allowed: bool) -> None:
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Literal(allowed)))


class TakesTheSourceAway(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Asked for Spark, which is when windows are about to be applied, it closes the source."""

    server_dsn: str
    database: str

    @property
    def spark_session(self) -> object:
        from pyspark.sql import SparkSession

        allow_connections(self.server_dsn, self.database, allowed=False)
        return SparkSession.active()


def test_source_that_is_away_after_the_commit_costs_the_shown_keys_only(followed: UnderDagster) -> None:
    change(followed, 1)
    request = requested(followed.tick())
    server, name = followed.database.server.dsn(), followed.database.name
    component = followed.component.model_copy(
        update={
            "spark": followed.component.spark.model_copy(update={"resource": "away"}),
            "merge": followed.component.merge.model_copy(update={"engine": "spark"}),
        }
    )
    away = dg.Definitions(resources={"away": TakesTheSourceAway(server_dsn=server, database=name)})
    defs = dg.Definitions.merge(component.definitions(), away)
    shop = UnderDagster(followed.database, component, defs, followed.instance, followed.lake, followed.spark)
    try:
        assert shop.run(request).success
    finally:
        allow_connections(server, name, allowed=True)
    shop.assert_equal()
    assert shop.green("public", "orders") == shop.green("public", "items") == set(shop.partition_keys())
    orders = shop.metadata("public", "orders", partition=shop.partition_keys()[-1])
    assert (orders["outcome"], orders["dagster/row_count"]) == ("applied", 100)
    assert "dagster/column_schema" not in orders
