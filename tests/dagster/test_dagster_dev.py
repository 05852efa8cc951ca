"""Dagster for real: ``dagster dev`` on the shipped workspace, a live server under load, and the UI in a browser.

``POSTGRES_CDC_SCREENSHOTS=docs/screenshots`` also writes the pictures of the documentation.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.embedded_postgres import PostgresServer, found_running, wheel_binaries
from cdc_assets.demo.shop_load import ShopLoad
from cdc_assets.demo.shop_schema import SHOP_TABLES
from spark_jobs.logicalrep.lsn import Window
from tests.dagster.dagster_dev import DEMO_UI, DG_DEV, ROOT, DagsterDev, dagster_dev, wait_for
from tests.fixtures.missing import is_missing
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(2400)]

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-headless-shell") or shutil.which("google-chrome")
_WINDOWS_UNDER_LOAD = 1  # a run: no keys are added while it is at work
_PATIENCE_SECONDS = 1500  # of a machine that is busy with other tests
_PAGE_MILLISECONDS = 90_000
_NAVIGATION = 240  # its width in pixels
_TREE = 300
_PADDING = 25
_MARGIN = 14
_HALF_A_ROW = 22
_GROUP = "/locations/__repository__@postgres-cdc/asset-groups/shop"
_TWO_TABLES = quote('key:"*shop/customers" or key:"*shop/orders" or key:"shop/change_log"', safe="")
_OPENED = quote(",".join(f"global@global:{name}" for name in ("postgres_postgres", "shop_snapshots", "shop")), safe="")
_TEXT_WITHIN = r"""clip => [...document.querySelectorAll("body *")].filter(e => {
    const box = e.getBoundingClientRect();
    return e.children.length === 0 && box.width > 0
        && box.left < clip.x + clip.width && box.right > clip.x
        && box.top < clip.y + clip.height && box.bottom > clip.y;
}).map(e => e.textContent).join("\n")"""


@dataclass(frozen=True)
class Trial:
    """One ``dagster dev`` that has followed a shop under load."""

    dev: DagsterDev
    database: Database
    lake: Path


@pytest.fixture(scope="module")
def trial(jars_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """What ``postgres-cdc demo --ui`` starts, with a busy shop; the sensor is turned off after a few windows."""
    folder = tmp_path_factory.mktemp("trial")
    command = [*DEMO_UI, "--folder", str(folder / "demo"), "--jars", str(jars_folder)]
    with dagster_dev(folder / "home", command) as dev:
        database = Database(_demo_server(folder / "demo"), "postgres")
        with ShopLoad(database.dsn):
            wait_for(lambda: _greens(dev), "green partitions", seconds=_PATIENCE_SECONDS, every=4)
            dev.stop_sensor("shop_slot_lag")
        dev.wait_for_runs()
        yield Trial(dev, database, folder / "demo" / "lake")


def _demo_server(folder: Path) -> PostgresServer:
    binaries = wheel_binaries()
    assert binaries is not None
    found = found_running(Path((folder / "server").read_text()), binaries=binaries)
    assert found is not None
    return found


def _greens(dev: DagsterDev) -> int | None:
    failed = [run for run in dev.runs() if run["status"] == "FAILURE"]
    assert not failed, dev.log.read_text()[-6000:]
    stats = [dev.partition_stats("shop", *table) for table in (("change_log",), ("shop", "orders"), ("shop", "items"))]
    least = min(each["numMaterialized"] for each in stats)
    return least if least >= _WINDOWS_UNDER_LOAD else None


def test_sensor_backfill_and_schedule_follow_the_source(
    trial: Trial, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = trial.dev
    ticks = dev.ticks("shop_slot_lag")
    assert not [tick for tick in ticks if tick["status"] == "FAILURE"]
    assert {run["jobName"] for run in dev.runs()} == {"shop_snapshot", "shop_sync"}

    trial.database.execute(
        "UPDATE shop.orders SET note = 'by the schedule' WHERE id = (SELECT max(id) FROM shop.orders)"
    )
    assert len(dev.run_schedule_once("shop_sync")) == 1
    dev.wait_for_runs()

    keys = dev.partition_keys("shop", "change_log")
    assert keys == sorted(keys, key=Window.parse)
    tables = [["shop", table.nspname, table.relname] for table in SHOP_TABLES]
    assert dev.backfill([["shop", "change_log"], *tables], keys[:2]) == "COMPLETED_SUCCESS"
    of_the_backfill = [run for run in dev.runs() if "dagster/backfill" in {tag["key"] for tag in run["tags"]}]
    assert len(of_the_backfill) == 1  # a range is one run
    assert not [run for run in dev.runs() if run["status"] != "SUCCESS"]
    for asset in (["shop", "change_log"], *tables):
        stats = dev.partition_stats(*asset)
        assert stats["numMaterialized"] == stats["numPartitions"] > _WINDOWS_UNDER_LOAD
        assert stats["numFailed"] == 0

    assert _rows_compared(trial, spark, monkeypatch) > 80_000


def _rows_compared(trial: Trial, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows the source has in the shop's tables; the lake has the same."""
    monkeypatch.setenv("SHOP_DSN", trial.database.dsn)
    monkeypatch.setenv("SHOP_LAKE", str(trial.lake))
    pipeline = load_pipeline(ROOT / "orchestration" / "defs" / "shop" / "defs.yaml")
    compared = compare(spark, pipeline, SHOP_TABLES)
    assert [table for table in compared if not table.equal] == []
    return sum(table.source_rows for table in compared)


def test_dagster_dev_has_no_warning_of_ours(trial: Trial) -> None:
    assert _warnings_of_ours(trial.dev) == []
    assert trial.database.server.password not in trial.dev.log.read_text()


@pytest.mark.nightly
def test_dg_dev_loads_without_a_warning_of_ours(tmp_path: Path) -> None:
    source = {"SHOP_DSN": "host=127.0.0.1 port=1 dbname=shop user=cdc", "SHOP_LAKE": str(tmp_path / "lake")}
    with dagster_dev(tmp_path / "home", DG_DEV, **source) as dev:
        assert not dev.ticks("shop_slot_lag")  # it is there, and off
        assert _warnings_of_ours(dev) == []


def _warnings_of_ours(dev: DagsterDev) -> list[str]:
    names = ("cdc_assets", "spark_jobs", "orchestration")
    return [line for line in dev.log.read_text().splitlines() if "Warning" in line and any(n in line for n in names)]


@pytest.fixture
def page(trial: Trial) -> Iterator[Page]:
    if _CHROMIUM is None:
        is_missing("no Chromium on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        yield page
        browser.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("POSTGRES_CDC_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.browser
def test_asset_graph(trial: Trial, page: Page, pictures: Path) -> None:
    page.set_viewport_size({"width": 1540, "height": 1030})
    open_page(page, f"{trial.dev.url}/asset-groups~{_TWO_TABLES}?expanded={_OPENED}")
    page.get_by_text("change_log", exact=True).first.wait_for(timeout=_PAGE_MILLISECONDS)
    wait_for(lambda: "Loading" not in page.locator("body").inner_text() or None, "the assets' states")
    assert page.get_by_text("customers", exact=True).count() >= len(("source", "snapshot", "table"))
    _picture(trial, page, pictures / "asset_graph.png", left=_NAVIGATION + _TREE, below="Reload definitions")


@pytest.mark.browser
def test_lag_plot(trial: Trial, page: Page, pictures: Path) -> None:
    open_page(page, f"{trial.dev.url}/assets/shop/change_log?view=overview")
    page.get_by_role("button", name="Plots").click()
    page.get_by_role("button", name="Events").click()
    lag = page.get_by_text("lag_bytes", exact=True).first
    lag.wait_for(timeout=_PAGE_MILLISECONDS)
    page.wait_for_timeout(2000)
    lag.evaluate("element => { element.style.scrollMarginTop = '14px'; element.scrollIntoView({block: 'start'}) }")
    page.wait_for_timeout(1000)
    # the definition, at the right, has the lake's path
    _picture(trial, page, pictures / "lag_plot.png", above="run_seconds", before="Group")


@pytest.mark.browser
def test_partitions(trial: Trial, page: Page, pictures: Path) -> None:
    key = trial.dev.partition_keys("shop", "change_log")[1]
    open_page(page, f"{trial.dev.url}/assets/shop/shop/orders?view=partitions&partition={key}")
    page.get_by_text("inserts").first.wait_for(timeout=_PAGE_MILLISECONDS)
    page.wait_for_timeout(2000)
    _picture(trial, page, pictures / "partitions.png", above="Tags")
    assert page.get_by_text("Failed (0)").count() > 0


@pytest.mark.browser
def test_the_first_click(trial: Trial, page: Page, pictures: Path) -> None:
    """ "Materialize all" of the group offers the partitions, and what it launches succeeds."""
    before = {run["runId"] for run in trial.dev.runs()}
    open_page(page, f"{trial.dev.url}{_GROUP}")
    page.get_by_text("Materialize all").first.click(timeout=_PAGE_MILLISECONDS)
    page.get_by_role("button", name="All", exact=True).click(timeout=_PAGE_MILLISECONDS)
    page.wait_for_timeout(1000)
    _picture(trial, page, pictures / "first_click.png", left=0)
    page.get_by_role("button", name="Launch").last.click()
    wait_for(lambda: {run["runId"] for run in trial.dev.runs()} - before or None, "the run that was clicked")
    trial.dev.wait_for_runs()
    assert {run["status"] for run in trial.dev.runs() if run["runId"] not in before} == {"SUCCESS"}


@pytest.mark.nightly
@pytest.mark.browser
def test_a_new_column_a_failed_table_a_break_and_its_recovery(
    trial: Trial, page: Page, pictures: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _a_column_is_added(trial, page, pictures)
    failed = _a_table_fails_and_is_mended(trial, page, pictures)
    _the_slot_is_dropped(trial, page, pictures)
    _it_is_recovered(trial, page, pictures)
    assert {run["status"] for run in trial.dev.runs() if run["runId"] != failed} == {"SUCCESS"}
    assert _rows_compared(trial, spark, monkeypatch) > 80_000


def _a_column_is_added(trial: Trial, page: Page, pictures: Path) -> None:
    """The run succeeds, and the check warns."""
    trial.database.execute(
        "ALTER TABLE shop.orders ADD COLUMN channel text DEFAULT 'web'",
        "UPDATE shop.orders SET channel = 'app' WHERE id = (SELECT max(id) FROM shop.orders)",
    )
    trial.dev.run_schedule_once("shop_sync")
    trial.dev.wait_for_runs()
    open_page(page, f"{trial.dev.url}/assets/shop/shop/orders?view=checks&checkDetail=schema_unchanged")
    page.get_by_text("channel string was added").first.wait_for(timeout=_PAGE_MILLISECONDS)
    _picture(trial, page, pictures / "schema_unchanged.png", above="Plots")


def _a_table_fails_and_is_mended(trial: Trial, page: Page, pictures: Path) -> str:
    """Its page says why; the run that failed."""
    dev = trial.dev
    check = f"{dev.url}/assets/shop/shop/customers?view=checks&checkDetail=watermark_is_last_window"
    trial.database.execute("UPDATE shop.customers SET joined = 'infinity' WHERE id = 1")
    [failed] = dev.run_schedule_once("shop_sync")
    dev.wait_for_runs()
    assert [run["status"] for run in dev.runs() if run["runId"] == failed] == ["FAILURE"]
    assert dev.partition_stats("shop", "shop", "customers")["numFailed"] == 1
    assert dev.partition_stats("shop", "shop", "orders")["numFailed"] == 0
    open_page(page, check)
    page.get_by_text("shop.customers column joined: infinity").wait_for(timeout=_PAGE_MILLISECONDS)
    _picture(trial, page, pictures / "failed_table.png", above="Plots")

    trial.database.execute("UPDATE shop.customers SET joined = now() WHERE id = 1")
    dev.start_sensor("shop_slot_lag")  # it leaves the table alone for half a minute
    wait_for(lambda: _all_green(dev, "shop", "customers"), "the mended table", seconds=_PATIENCE_SECONDS, every=4)
    dev.stop_sensor("shop_slot_lag")
    dev.wait_for_runs()
    open_page(page, check)
    page.get_by_text("Passed").first.wait_for(timeout=_PAGE_MILLISECONDS)
    return failed


def _the_slot_is_dropped(trial: Trial, page: Page, pictures: Path) -> None:
    """Ticks fail, and the check says which job to launch."""
    dev = trial.dev
    trial.database.execute("SELECT pg_drop_replication_slot('shop')")
    dev.start_sensor("shop_slot_lag")
    wait_for(lambda: dev.ticks("shop_slot_lag")[0]["status"] == "FAILURE" or None, "a red tick")
    error = dev.ticks("shop_slot_lag")[0]["error"]
    assert "hint: the job `shop_recover` begins a new chapter" in error["causes"][0]["message"]
    browser = page.context.browser
    assert browser is not None
    page = browser.new_page(viewport=page.viewport_size)  # with a warm cache the page shortens its asset's key
    open_page(page, f"{dev.url}/assets/shop/change_log?view=checks&checkDetail=slot_health")
    page.get_by_text("slot shop is gone").wait_for(timeout=_PAGE_MILLISECONDS)
    assert page.get_by_text("shop_recover", exact=True).count() == 1
    _picture(trial, page, pictures / "break.png", above="Plots")


def _it_is_recovered(trial: Trial, page: Page, pictures: Path) -> None:
    """By one launch of the job; then the sensor goes on."""
    dev = trial.dev
    recovery = dev.launch({"jobName": "shop_recover", "tags": []})
    dev.wait_for_runs()
    trial.database.execute("UPDATE shop.orders SET note = 'after' WHERE id = (SELECT max(id) FROM shop.orders)")
    wait_for(lambda: _went_on_after(dev, recovery), "a quiet tick", seconds=_PATIENCE_SECONDS)
    page.set_viewport_size({"width": 1440, "height": 1000})
    open_page(page, f"{dev.url}/locations/__repository__@postgres-cdc/sensors/shop_slot_lag")
    page.get_by_text("1 run requested").first.wait_for(timeout=_PAGE_MILLISECONDS)
    _picture(trial, page, pictures / "recovery.png", below="Cursor", with_row="Failure")
    dev.stop_sensor("shop_slot_lag")
    dev.wait_for_runs()


def _all_green(dev: DagsterDev, *table: str) -> bool | None:
    stats = dev.partition_stats("shop", *table)
    return stats["numMaterialized"] == stats["numPartitions"] or None


def _went_on_after(dev: DagsterDev, recovery: str) -> bool | None:
    """Whether the sensor has had a run since, and has nothing left to do."""
    since = list(takewhile(lambda run: run["runId"] != recovery, dev.runs()))
    quiet = "caught up" in (dev.ticks("shop_slot_lag")[0]["skipReason"] or "")
    return (bool(since) and quiet) or None


def _picture(
    trial: Trial,
    page: Page,
    file: Path,
    *,
    left: int = _NAVIGATION,
    before: str = "",
    below: str = "",
    above: str = "",
    with_row: str = "",
) -> None:
    """Of a page without its navigation: what is left of the text ``before``, ``below`` one text and ``above`` another,
    or down to a table's row. It tells nobody where the test ran."""
    size = page.viewport_size
    assert size is not None
    right = _box(page, before)["left"] - _PADDING if before else size["width"]
    top = _box(page, below)["bottom"] + _MARGIN if below else 0
    bottom: float = size["height"]
    if above:
        bottom = _box(page, above)["top"] - _MARGIN
    elif with_row:
        bottom = _box(page, with_row)["bottom"] + _HALF_A_ROW
    clip: FloatRect = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    page.screenshot(path=file, clip=clip)
    text = page.evaluate(_TEXT_WITHIN, clip)
    assert "Loading" not in text
    secrets = (str(trial.lake.parent), str(ROOT), trial.database.server.password)
    assert not [secret for secret in secrets if secret in text]


def _box(page: Page, text: str) -> dict[str, float]:
    box = page.get_by_text(text, exact=True).first.bounding_box()
    assert box is not None
    return {"left": box["x"], "top": box["y"], "bottom": box["y"] + box["height"]}


def open_page(page: Page, url: str) -> None:
    page.goto(url, timeout=_PAGE_MILLISECONDS)
    page.wait_for_load_state("networkidle", timeout=_PAGE_MILLISECONDS)
    page.wait_for_timeout(3000)  # the graph is laid out by a worker
