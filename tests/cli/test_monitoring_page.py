"""``docs/monitoring.md``, the alert rules and the dashboard: they name every metric that there is, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from prometheus_client import CollectorRegistry

from cdc_assets.blueprint import SLOT_HEALTH_CHECK
from cdc_assets.cli.follow_monitor import FollowMonitor
from cdc_assets.cli.json_output import json_value
from cdc_assets.configuration.health_model import HealthModel
from cdc_assets.slot_observation import health_metadata
from spark_jobs.capture.lag import Lag
from spark_jobs.capture.slot_findings import Finding
from spark_jobs.errors import SourceError
from spark_jobs.follow import FollowRound
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.postgres.health import ServerIdentity, SlotHealth
from spark_jobs.postgres.open_transactions import OpenTransaction
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.status import LogStatus, PipelineStatus, TableStatus

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus-rules.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
_METRIC = re.compile(r"\bpostgres_cdc_\w+")

SLOT = SlotHealth(
    slot_name="shop",
    plugin="pgoutput",
    two_phase=False,
    active_pid=None,
    confirmed_flush_lsn=Lsn(1),
    restart_lsn=Lsn(1),
    flushed_lsn=Lsn(2),
    wal_status="reserved",
    safe_wal_size=1 << 30,
    invalidation_reason=None,
    oldest_transaction=OpenTransaction(4711, None, timedelta(hours=2)),
    free_replication_slots=3,
    server=ServerIdentity(1, 1, 180000, "shop"),
)
TABLE = TableStatus(QualifiedName("public", "t"), Lsn(1), Lsn(2), 1, 1, 1, 1.0, 1, error=SourceError("gone"))
STATUS = PipelineStatus(
    "shop", "/lake", SLOT, None, LogStatus(1, Lsn(2), 1, 1.0), (TABLE,), findings=(Finding("warn", "much: do less"),)
)
ROUND = FollowRound(datetime(2026, 1, 1, tzinfo=UTC), 0.7, 1, 10, (), (), 0, 0.0, ())


def registry() -> CollectorRegistry:
    """With a sample of every metric."""
    monitor = FollowMonitor("shop", lambda: STATUS, every=5)
    monitor.note(ROUND)
    return monitor.registry


def rows() -> Iterator[str]:
    """The page's table of metrics, as the code has them."""
    yield "| metric | type | unit | labels | means |"
    yield "|---|---|---|---|---|"
    for metric in registry().collect():
        name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
        unit = next((unit for unit in ("bytes", "seconds") if name.endswith(f"_{unit}")), "")
        labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels if label != "le")
        kind = {"info": "gauge"}.get(metric.type, metric.type)
        yield f"| `{name}` | {kind} | {unit} | {', '.join(f'`{label}`' for label in labels)} | {metric.documentation} |"


def test_the_page_has_every_metric_and_no_other() -> None:
    _, shown, _ = re.split(r"<!-- /?metrics -->\n", PAGE)
    assert shown.splitlines() == list(rows())
    known = {sample for metric in registry().collect() for sample in (metric.name, *(s.name for s in metric.samples))}
    assert set(_METRIC.findall(PAGE)) <= known


def queries() -> Iterator[tuple[str, str]]:
    for rule in RULES["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from (
        (each["name"], each["query"]["query"]) for each in DASHBOARD["templating"]["list"] if each["type"] == "query"
    )


@pytest.mark.parametrize(("where", "expression"), list(queries()))
def test_a_query_asks_for_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    samples = {sample.name: sample.labels for metric in registry().collect() for sample in metric.samples}
    named = _METRIC.findall(expression)
    assert named or where == "PostgresCdcFileOld"
    assert set(named) <= samples.keys()
    assert not set(named) & {"postgres_cdc_restart_distance_bytes", "postgres_cdc_safe_wal_bytes"}, "a former name"
    chosen = {
        label
        for inside in re.findall(r"postgres_cdc_\w+\{(.*?)\}", expression)
        for label in re.findall(r"(\w+)=", inside)
    }
    grouped = {label.strip() for inside in re.findall(r"by \((.*?)\)", expression) for label in inside.split(",")}
    assert chosen | grouped <= {label for name in named for label in samples[name]}


def test_every_panel_has_a_place_of_its_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_quantities_have_the_names_of_the_page() -> None:
    _, table = re.split(r"^\| `health:` .*\n.*\n", PAGE, maxsplit=1, flags=re.MULTILINE)
    document, metadata = json_value(STATUS), health_metadata(SLOT, Lag(1, 1.0))
    metrics = {metric.name for metric in registry().collect()}
    thresholds = set()
    for line in table.partition("\n\n")[0].splitlines():
        threshold, path, metric, key = (cell.strip(" `") for cell in line.split("|")[1:5])
        value: Any = document
        for name in path.split("."):
            value = value[name.removesuffix("[]")]
            value = value[0] if name.endswith("[]") else value
        assert isinstance(value, int | float), path
        assert not metric or metric in metrics
        assert not key or key in metadata
        assert not threshold or threshold in {path.split(".")[1]}, "one name"
        thresholds.add(threshold)
    assert thresholds - {""} == set(HealthModel.model_fields)


def test_the_thresholds_are_the_defaults() -> None:
    (shown,) = re.findall(r"```yaml\nhealth:\n(.*?)```", PAGE, re.DOTALL)
    given = yaml.safe_load(f"health:\n{shown}")["health"]
    assert HealthModel.model_validate(given) == HealthModel()


def test_jq_asks_for_fields_that_exist() -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    asked = {name for line in re.findall(r"'(.*?)'", block) for name in re.findall(r"\.([a-z_]+)", line)}
    assert asked
    assert asked <= names(json_value(STATUS)) | names(json_value(ROUND))


def names(value: object) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(name for each in value.values() for name in names(each))}
    return {name for each in value for name in names(each)} if isinstance(value, list) else set()


def python_block(mentioning: str) -> dict[str, Any]:
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if mentioning in block]
    found: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "monitoring.md", "exec"), found)  # noqa: S102 - what the page shows
    return found


def test_the_freshness_check_takes_the_lag_of_observations() -> None:
    page = python_block("build_last_update_freshness_checks")
    change_log, (check,) = dg.AssetKey(["shop", "change_log"]), page["fresh"]
    job = dg.define_asset_job("fresh", dg.AssetSelection.checks(check))
    defs = dg.Definitions(assets=[dg.AssetSpec(change_log)], asset_checks=[check], jobs=[job])

    def passes(lag: Lag) -> bool:
        with dg.DagsterInstance.ephemeral() as instance:
            instance.report_runless_asset_event(dg.AssetObservation(change_log, metadata=health_metadata(SLOT, lag)))
            result = defs.resolve_job_def("fresh").execute_in_process(instance=instance)
            return all(evaluation.passed for evaluation in result.get_asset_check_evaluations())

    assert passes(Lag(0, 0.0)), "a quiet database"
    assert passes(Lag(1, 600.0))
    assert not passes(Lag(1, 3600.0)), "observed now, and an hour late"
    assert page["defs"].sensors


def test_the_alerting_sensor_says_what_the_check_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = python_block("get_latest_asset_check_evaluation_record")
    key = page["SLOT_HEALTH"]
    assert key.name == SLOT_HEALTH_CHECK
    cursor = None
    with dg.DagsterInstance.ephemeral() as instance:
        for passed in (True, False, False, True):
            evaluation = dg.AssetCheckEvaluation(key.asset_key, key.name, passed=passed, description="much: do less")
            instance.report_runless_asset_event(evaluation)
            context = dg.build_sensor_context(instance=instance, cursor=cursor)
            page["shop_alerts"](context)
            cursor = context.cursor
    assert capsys.readouterr().out.splitlines() == ["much: do less", "shop is well again"]
