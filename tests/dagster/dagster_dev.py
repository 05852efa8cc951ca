"""``dagster dev`` on the repository's own workspace, driven through GraphQL as the UI drives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.free_port import free_port

ROOT = Path(__file__).parents[2]
DAGSTER_DEV = (sys.executable, "-m", "dagster", "dev", "-w", str(ROOT / "workspace.yaml"))
DEMO_UI = (sys.executable, "-m", "cdc_assets.cli", "demo", "--ui")
DG_DEV = (str(Path(sys.executable).with_name("dg")), "dev")
_LOCATION = {"repositoryLocationName": "postgres-cdc", "repositoryName": "__repository__"}
# the SQLite schema is made by one process before several meet it
_TOUCH_INSTANCE = (
    "import dagster as dg; i = dg.DagsterInstance.get(); i.event_log_storage.get_dynamic_partitions('x');"
    " i.get_runs_count(); i.schedule_storage.all_instigator_state()"
)


@dataclass(frozen=True)
class DagsterDev:
    """A running webserver and daemon."""

    url: str
    log: Path

    def ask(self, query: str, **variables: Any) -> Any:
        """The one field of a GraphQL answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310
                answer = json.load(response)
        except urllib.error.HTTPError as error:  # which says why in its body
            raise AssertionError(error.read().decode()) from error
        assert "errors" not in answer, answer["errors"]
        [value] = answer["data"].values()
        return value

    def start_sensor(self, name: str) -> None:
        query = """mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) {
            __typename ... on Sensor { id sensorState { id } } } }"""
        assert self.ask(query, s={**_LOCATION, "sensorName": name})["__typename"] == "Sensor"

    def stop_sensor(self, name: str) -> None:
        state = self.ask(
            "query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState { id } } } }",
            s={**_LOCATION, "sensorName": name},
        )["sensorState"]["id"]
        query = "mutation($id: String) { stopSensor(id: $id) { __typename } }"
        assert self.ask(query, id=state)["__typename"] == "StopSensorMutationResult"
        # a tick that is at work may still ask for a run
        wait_for(lambda: all(tick["status"] != "STARTED" for tick in self.ticks(name)) or None, "the last tick's end")

    def ticks(self, sensor: str) -> Sequence[Mapping[str, Any]]:
        query = """query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor {
            sensorState { ticks(limit: 50) { status skipReason error { message causes { message } } } } } } }"""
        ticks = self.ask(query, s={**_LOCATION, "sensorName": sensor})["sensorState"]["ticks"]
        return list(ticks)

    def partition_stats(self, *asset: str) -> Mapping[str, int]:
        query = """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
            partitionStats { numPartitions numMaterialized numFailed } } } }"""
        stats = self.ask(query, k={"path": list(asset)})["partitionStats"]
        return dict(stats)

    def partition_keys(self, *asset: str) -> list[str]:
        query = """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
            partitionKeys } } }"""
        return list(self.ask(query, k={"path": list(asset)})["partitionKeys"])

    def runs(self) -> Sequence[Mapping[str, Any]]:
        query = (
            "query { runsOrError(limit: 100) { ... on Runs { results { runId jobName status tags { key value } } } } }"
        )
        return list(self.ask(query)["results"])

    def backfill(self, assets: Sequence[Sequence[str]], partitions: Sequence[str]) -> str:
        """Launch a backfill and wait for its end; its status."""
        query = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
            __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
        parameters = {"assetSelection": [{"path": list(a)} for a in assets], "partitionNames": list(partitions)}
        launched = self.ask(query, p=parameters)
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        status = """query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
            status } } }"""
        ends = ("COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")

        def ended() -> str | None:
            state = str(self.ask(status, id=launched["backfillId"])["status"])
            return state if state in ends else None

        return str(wait_for(ended, "the backfill's end", seconds=400))

    def run_schedule_once(self, name: str) -> list[str]:
        """As the UI's "test schedule" does: evaluate it now and launch what it asks for; the runs' ids."""
        query = """mutation($s: ScheduleSelector!, $t: Float) { scheduleDryRun(selectorData: $s, timestamp: $t) {
            __typename ... on DryRunInstigationTick { evaluationResult { skipReason error { message }
            runRequests { jobName tags { key value } } } } } }"""
        tick = self.ask(query, s={**_LOCATION, "scheduleName": name}, t=time.time())["evaluationResult"]
        assert tick["error"] is None, tick
        return [self.launch(request) for request in tick["runRequests"] or []]

    def launch(self, request: Mapping[str, Any]) -> str:
        query = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
            __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
        tags = [{"key": tag["key"], "value": tag["value"]} for tag in request["tags"]]
        parameters = {
            "selector": {**_LOCATION, "jobName": request["jobName"] or "shop_sync"},
            "executionMetadata": {"tags": tags},
            "mode": "default",
        }
        launched = self.ask(query, p=parameters)
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def wait_for_runs(self) -> None:
        """Until no run is queued or at work."""
        done = ("SUCCESS", "FAILURE", "CANCELED")
        wait_for(lambda: all(run["status"] in done for run in self.runs()) or None, "the runs' end", seconds=400)


@contextmanager
def dagster_dev(home: Path, command: Sequence[str] = DAGSTER_DEV, **environment: str) -> Iterator[DagsterDev]:
    """Start it in a home of its own, with the shipped ``dagster.yaml``; stopped as Ctrl-C stops it."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "orchestration" / "dagster.yaml", home)
    env = {**os.environ, "DAGSTER_HOME": str(home), **environment}
    subprocess.run([sys.executable, "-c", _TOUCH_INSTANCE], env=env, check=True, capture_output=True)
    port = str(free_port())
    log = home / "dagster_dev.log"
    with log.open("wb") as output:
        # a shell's background job would have SIGINT ignored, and so would its children
        process = subprocess.Popen(
            [*command, "--port", port],
            env=env,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
    dev = DagsterDev(f"http://127.0.0.1:{port}", log)
    try:
        wait_for(lambda: _loaded(dev, process), "the code location", seconds=180)
        yield dev
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = 120, every: float = 1) -> Any:
    """Ask ``every`` so many seconds until the answer is not None."""
    deadline = time.monotonic() + seconds
    while (answer := condition()) is None:
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(every)
    return answer


def _loaded(dev: DagsterDev, process: subprocess.Popen[bytes]) -> bool | None:
    assert process.poll() is None, dev.log.read_text()[-3000:]
    query = """query { workspaceOrError { ... on Workspace { locationEntries { loadStatus
        locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
    try:
        entries = dev.ask(query)["locationEntries"]
    except (urllib.error.URLError, ConnectionError):
        return None
    location = entries[0]["locationOrLoadError"] if entries else None
    assert location is None or location["__typename"] != "PythonError", location
    return True if location and location["__typename"] == "RepositoryLocation" else None
