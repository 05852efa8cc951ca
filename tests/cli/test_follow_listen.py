"""``follow --listen``: a real process, asked over HTTP while its source goes away and comes back."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from cdc_assets.demo.embedded_postgres import running_postgres
from tests.cli.command import configured
from tests.cli.following import following
from tests.fixtures.server_folders import server_folder
from tests.fixtures.servers import Database, binaries_of
from tests.fixtures.waiting import wait_until

_PATIENCE_SECONDS = 120


@pytest.fixture
def folder() -> Iterator[Path]:
    with server_folder("listen") as made:
        yield made


def health(url: str) -> requests.Response:
    return requests.get(f"{url}/healthz", timeout=30)


def samples(url: str) -> dict[tuple[str, str], float]:
    """By name, and the table."""
    text = requests.get(f"{url}/metrics", timeout=30).text
    families = text_string_to_metric_families(text)
    return {(s.name, s.labels.get("table", "")): s.value for family in families for s in family.samples}


@pytest.mark.postgres
def test_a_source_that_goes_away_and_comes_back(folder: Path, tmp_path: Path) -> None:
    binaries = binaries_of(18)
    with ExitStack() as stack:
        with running_postgres(folder, binaries=binaries) as server:
            database = Database(server, "postgres")
            database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
            command = configured(tmp_path, database.dsn, "shop", ["public.t", "public.missing"])
            options = ("--json", "--every", "1s", "--listen", "127.0.0.1:0")
            process = stack.enter_context(following(command, *options))
            url = process.served_at()
            process.wait_for(lambda done: done["snapshots"])
            database.execute("INSERT INTO t VALUES (2)")
            process.wait_until_shown()
            well = health(url)
            assert well.status_code == 200, well.text
            assert [error[:31] for error in well.json()["errors"]] == ["there is no table public.missin"]
            wait_until(lambda: samples(url).get(("postgres_cdc_table_lag_seconds", "public.t")) is not None)
            found = samples(url)
            assert found["postgres_cdc_up", ""] == 1
            assert found["postgres_cdc_rounds_total", ""] == found["postgres_cdc_round_seconds_count", ""] > 0
            assert found["postgres_cdc_failed_rounds_total", ""] == 0
            assert ("postgres_cdc_build_info", "") in found
        process.wait_for(lambda done: done["pipeline_errors"])
        gone = health(url)
        assert gone.status_code == 503
        assert "connect" in gone.json()["reason"]
        assert server.password not in gone.text
        wait_until(lambda: samples(url)["postgres_cdc_up", ""] == 0)
        assert samples(url)["postgres_cdc_failed_rounds_total", ""] > 0

        with running_postgres(folder, binaries=binaries, port=server.port):
            process.wait_for(lambda done: not done["pipeline_errors"])
            wait_until(lambda: health(url).status_code == 200)
            wait_until(lambda: samples(url)["postgres_cdc_up", ""] == 1)
            process.process.send_signal(signal.SIGTERM)
            assert process.wait_for_end()["is_last"]
            with pytest.raises(requests.ConnectionError):
                health(url)


@pytest.mark.slow
def test_where_nothing_can_listen_nothing_begins(tmp_path: Path) -> None:
    command = configured(tmp_path, "host=nowhere", "shop", ["public.orders"])
    wrong = command("follow", "--listen", "9464")
    assert wrong.exit_code == 2
    assert "'9464' is not an address: expected 127.0.0.1:9464, [::1]:9464, or" in wrong.problem
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        taken = command("follow", "--listen", address)
    assert (taken.exit_code, taken.problem) == (1, f"cannot listen on {address}: Address already in use")
    assert taken.hint == "choose another address with --listen, or stop what listens there"
    assert not (tmp_path / "lake").exists()
