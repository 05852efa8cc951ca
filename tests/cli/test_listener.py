"""What ``follow --listen`` serves of rounds that are given. ``test_follow_listen`` asks a real process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from cdc_assets.cli.follow_monitor import FollowMonitor
from cdc_assets.cli.fresh_status import FreshStatus
from cdc_assets.cli.listener import ListenAddress, listening
from spark_jobs.errors import CdcError, LakeError
from spark_jobs.follow import FollowRound
from spark_jobs.status import PipelineStatus

ROUND = FollowRound(datetime(2026, 1, 1, tzinfo=UTC), 0.7, 1, 10, (), (), 0, 0.0, ())
FAILED = replace(ROUND, seconds=20.0, errors=("cannot connect", "t is stopped"), pipeline_errors=("cannot connect",))
STATUS = PipelineStatus("shop", "/lake", None, None, None, ())


class Clock:
    """Seconds that pass when told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def served(monitor: FollowMonitor) -> Iterator[str]:
    with listening(ListenAddress("127.0.0.1", 0), monitor) as address:
        yield f"http://{address}"


def asked(url: str) -> tuple[int, dict[str, object]]:
    answer = requests.get(url, timeout=10)
    return answer.status_code, answer.json()


def scraped(url: str) -> dict[str, float]:
    """Of the samples without further labels than the pipeline's, and of buckets."""
    families = text_string_to_metric_families(requests.get(f"{url}/metrics", timeout=10).text)
    samples = [sample for family in families for sample in family.samples]
    return {
        f"{sample.name}{sample.labels.get('le', '')}".removeprefix("postgres_cdc_"): sample.value for sample in samples
    }


def test_health_is_that_of_the_last_round() -> None:
    clock = Clock()
    monitor = FollowMonitor("shop", lambda: None, every=5, clock=clock)
    with served(monitor) as url:
        assert asked(f"{url}/healthz") == (503, {"reason": "no round has ended yet"})
        monitor.note(replace(ROUND, errors=("t is stopped",)))
        code, told = asked(f"{url}/healthz")
        assert (code, told["errors"], "reason" in told) == (200, ["t is stopped"], False), "the others are up to date"
        monitor.note(FAILED)
        code, told = asked(f"{url}/healthz")
        assert (code, told["reason"], told["errors"]) == (503, "cannot connect", ["cannot connect", "t is stopped"])
        monitor.note(ROUND)
        clock.now += 60
        assert asked(f"{url}/healthz")[0] == 200
        clock.now += 1
        code, told = asked(f"{url}/healthz")
        assert (code, told["reason"]) == (503, "the last round ended 61 s ago, the bound is 60 s")
        assert told["windows"] == 1


def test_the_bound_follows_every() -> None:
    clock = Clock()
    monitor = FollowMonitor("shop", lambda: None, every=120, clock=clock)
    monitor.note(ROUND)
    clock.now += 360
    assert monitor.trouble == ""
    clock.now += 1
    assert monitor.trouble


def test_metrics_of_rounds() -> None:
    clock = Clock()
    monitor = FollowMonitor("shop", lambda: STATUS, every=5, clock=clock)
    with served(monitor) as url:
        clock.now += 3
        before = scraped(url)
        assert (before["rounds_total"], before["failed_rounds_total"], before["last_round_age_seconds"]) == (0, 0, 3)
        monitor.note(ROUND)
        monitor.note(FAILED)
        clock.now += 7
        found = scraped(url)
    assert (found["rounds_total"], found["failed_rounds_total"], found["last_round_age_seconds"]) == (2, 1, 7)
    assert (found["round_seconds_bucket1.0"], found["round_seconds_bucket30.0"]) == (1, 2)
    assert found["round_seconds_sum"] == pytest.approx(20.7)
    assert found["build_info"] == 1
    assert found["up"] == 1


def test_without_a_status_its_metrics_are_absent_and_the_rest_is_there() -> None:
    with served(FollowMonitor("shop", lambda: None, every=5)) as url:
        found = scraped(url)
    assert "up" not in found
    assert found["rounds_total"] == 0


def test_other_paths_are_not_found() -> None:
    with served(FollowMonitor("shop", lambda: None, every=5)) as url:
        assert requests.get(f"{url}/metrics/nothing", timeout=10).status_code == 404


def test_scrapes_ask_the_source_once_per_interval() -> None:
    clock, looks = Clock(), []

    def look() -> PipelineStatus:
        looks.append(clock.now)
        if len(looks) == 2:
            raise LakeError("the log cannot be read")
        return STATUS

    status = FreshStatus(look, every=5, clock=clock)
    assert [status() for _ in range(3)] == [STATUS] * 3
    clock.now += 4.9
    assert status() is STATUS
    assert len(looks) == 1
    clock.now += 0.1
    assert status() is None, "what was before is not told when it is no longer known"
    assert len(looks) == 2
    clock.now += 5
    assert status() is STATUS


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", ListenAddress("127.0.0.1", 9464)),
        ("localhost:80", ListenAddress("localhost", 80)),
        ("[::1]:9464", ListenAddress("::1", 9464)),
        ("0.0.0.0:0", ListenAddress("0.0.0.0", 0)),  # noqa: S104 - only parsed
    ],
)
def test_addresses(text: str, address: ListenAddress) -> None:
    assert ListenAddress.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["9464", ":9464", "::1:9464", "host:", "host:65536", "http://host:1", "a b:1", "[]:1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: expected 127\.0\.0\.1:9464, "):
        ListenAddress.parse(text)


def test_a_port_that_is_taken_is_one_line() -> None:
    monitor = FollowMonitor("shop", lambda: None, every=5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = ListenAddress("127.0.0.1", other.getsockname()[1])
        with (
            pytest.raises(CdcError, match=f"cannot listen on {address}: Address already in use"),
            listening(address, monitor),
        ):
            pass


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6() -> None:
    with listening(ListenAddress("::1", 0), FollowMonitor("shop", lambda: None, every=5)) as address:
        assert asked(f"http://{address}/healthz")[0] == 503
