"""A table that cannot go on fails its own asset; the others, and the slot, go on without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg
import pytest
from pydantic import SecretStr

from cdc_assets.blueprint import WATERMARK_CHECK
from cdc_assets.stopped_tables import StoppedTables
from spark_jobs.capture.capture import capture
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.snapshot import exporter
from spark_jobs.snapshot.exporter import Patience
from tests.dagster.pipeline_under_dagster import UnderDagster

HOUR = 3600

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def failures_of(result: dg.ExecuteInProcessResult) -> str:
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return "\n".join(error.to_string() for error in errors if error is not None)


def watermark_check(result: dg.ExecuteInProcessResult, table: dg.AssetKey) -> dg.AssetCheckEvaluation:
    [check] = [
        each
        for each in result.get_asset_check_evaluations()
        if (each.asset_key, each.check_name) == (table, WATERMARK_CHECK)
    ]
    return check


def newest_sync(shop: UnderDagster) -> dg.DagsterRun:
    return shop.instance.get_runs(dg.RunsFilter(job_name=f"{shop.name}_sync"), limit=1)[0]


def stopped(shop: UnderDagster) -> Sequence[tuple[str, int]]:
    """What the newest run has found: the stopped tables, and how often each was tried."""
    return [(table.name, table.tries) for table in StoppedTables.of_run(newest_sync(shop).tags).tables]


def later(shop: UnderDagster, seconds: int) -> None:
    """As if the stopped tables had been tried that much earlier."""
    run = newest_sync(shop)
    found = StoppedTables.of_run(run.tags)
    tables = tuple(replace(each, since=each.since - seconds, tried=each.tried - seconds) for each in found.tables)
    shop.instance.add_run_tags(run.run_id, replace(found, tables=tables).tags)


def not_yet(shop: UnderDagster) -> None:
    """It is not the turn of the stopped tables, however slow this machine is."""
    later(shop, -HOUR)


def health(tick: dg.SensorResult) -> tuple[bool, str]:
    [evaluation] = [event for event in tick.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
    return evaluation.passed, str(evaluation.description)


def test_the_others_do_not_wait_for_a_stopped_table(shop: UnderDagster) -> None:
    shop.database.execute("ALTER TABLE items RENAME TO away", "UPDATE orders SET amount = 7")
    result = shop.run((shop.tick().run_requests or [])[0], raise_on_error=False)
    assert not result.success
    assert "there is no table public.items" in failures_of(result)
    shop.assert_equal(["public.orders"])
    assert shop.green("public", "orders") == shop.green("change_log") == set(shop.partition_keys())
    assert shop.green("public", "items") == set()
    assert stopped(shop) == [("public.items", 1)]
    items = dg.AssetKey([shop.name, "public", "items"])
    observed = shop.instance.fetch_observations(items, limit=1).records[0].asset_observation
    assert observed is not None
    assert "there is no table public.items" in str(observed.description)
    check = watermark_check(result, items)
    assert (check.passed, check.severity, check.description) == (
        False,
        dg.AssetCheckSeverity.ERROR,
        observed.description,
    )

    for amount in (8, 9):  # at once, without the table, and green
        shop.database.execute(f"UPDATE orders SET amount = {amount}")
        not_yet(shop)
        tick = shop.tick()
        passed, told = health(tick)
        assert not passed
        assert "public.items is stopped since 20" in told
        [request] = tick.run_requests or []
        orders, log = (dg.AssetKey([shop.name, *key]) for key in (("public", "orders"), ("change_log",)))
        assert set(request.asset_selection or ()) == {orders, log}
        assert shop.run(request).success
        shop.assert_equal(["public.orders"])
        assert stopped(shop) == [("public.items", 1)]
    cut = latest_cut(shop.component.pipeline.lake)
    assert cut is not None
    assert [str(table.name) for table in cut.tables] == ["public.orders"]
    assert shop.green("public", "orders") == set(shop.partition_keys())

    # it is its turn, with nothing else to do: tried again, on a back-off of its own
    later(shop, 3 * HOUR)
    [request] = shop.tick().run_requests or []
    assert request.asset_selection is None
    assert not shop.run(request, raise_on_error=False).success
    assert stopped(shop) == [("public.items", 2)]
    not_yet(shop)
    waiting = shop.tick()
    assert all(
        dg.AssetKey([shop.name, "public", "items"]) not in (r.asset_selection or ()) for r in waiting.run_requests or []
    )

    shop.database.execute("ALTER TABLE away RENAME TO items", "INSERT INTO items VALUES (500, 1, 'more')")
    later(shop, 2 * HOUR)
    result = shop.run((shop.tick().run_requests or [])[0])
    assert result.success
    checks = {each.check_name: each.passed for each in result.get_asset_check_evaluations() if each.asset_key == items}
    assert checks == {"watermark_is_last_window": True, "schema_unchanged": False}  # it was read again after DDL
    shop.assert_equal()
    assert stopped(shop) == []
    assert shop.green("public", "items") == shop.green("public", "orders") == set(shop.partition_keys())
    shop.database.execute("INSERT INTO items VALUES (501, 1, 'more')")
    assert health(shop.tick())[0]


def test_a_run_that_comes_to_nothing_makes_the_pipeline_wait(shop: UnderDagster) -> None:
    """Handed what is stopped, it has found nothing: the last words are those of the run before it."""
    shop.database.execute("ALTER TABLE items RENAME TO away", "UPDATE orders SET amount = 7")
    shop.run((shop.tick().run_requests or [])[0], raise_on_error=False)
    shop.database.execute("UPDATE orders SET amount = 8")
    [request] = shop.tick().run_requests or []
    job = shop.defs.resolve_job_def(f"{shop.name}_sync")
    tags = {**job.tags, **request.tags}
    shop.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.FAILURE)
    said = str(shop.tick().skip_reason)
    assert "the last 1 runs failed; the next try is in" in said
    assert "public.items is stopped since" in said
    assert stopped(shop) == [("public.items", 1)]


def test_a_table_whose_snapshot_waits_for_a_transaction_fails_nothing(
    shop: UnderDagster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the transaction is WAL, for which the next tick requests a run: that takes the snapshot."""
    for patience in ("BRIEF", "IN_TURNS"):
        monkeypatch.setattr(exporter, patience, Patience(0))
    items = dg.AssetKey([shop.name, "public", "items"])
    before = shop.green("public", "items")
    with shop.database.connect() as session, session.transaction():
        session.execute("CREATE TABLE elsewhere (id int)")
        shop.database.execute(
            "ALTER TABLE items ALTER what TYPE text USING what || '!'", "UPDATE orders SET amount = 7"
        )
        request = (shop.tick().run_requests or [])[0]
        result = shop.run(request)
        assert result.success
        shop.assert_equal(["public.orders"])
        assert shop.green("public", "orders") == shop.green("change_log") == set(shop.partition_keys())
        assert shop.green("public", "items") == before
        said = f"while the transaction of server process {session.info.backend_pid} (idle in transaction), open for "
        observed = shop.instance.fetch_observations(items, limit=1).records[0].asset_observation
        assert observed is not None
        assert observed.description is not None
        assert observed.description.startswith("public.items waits for its snapshot: ")
        assert said in observed.description
        check = watermark_check(result, items)
        assert (check.passed, check.severity, said in str(check.description)) == (
            False,
            dg.AssetCheckSeverity.WARN,
            True,
        )
    monkeypatch.undo()
    assert shop.run((shop.tick().run_requests or [])[0]).success
    shop.assert_equal()
    assert shop.green("public", "items") == set(shop.partition_keys())


def test_landed_windows_are_applied_while_the_source_is_down(shop: UnderDagster) -> None:
    shop.database.execute("UPDATE orders SET amount = 7")
    shop.tick()
    capture(shop.component.pipeline)
    key = dg.AssetKey([shop.name, "public", "orders"])
    shop.component.source.dsn = SecretStr("host=127.0.0.1 port=1 dbname=nowhere connect_timeout=2")
    away = shop.component.definitions()
    result = dg.materialize(
        [away.resolve_assets_def(key)],
        selection=dg.AssetSelection.assets(key),
        partition_key=shop.partition_keys()[-1],
        instance=shop.instance,
    )
    assert result.success
    # by hand, and the sensor sees it nonetheless
    assert shop.instance.get_runs(limit=1)[0].tags["postgres_cdc/pipeline"] == shop.name
    shop.assert_equal(["public.orders"])
