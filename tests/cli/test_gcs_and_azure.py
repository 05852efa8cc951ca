"""Lakes on the emulators of Google's and Azure's storage, without Spark: snapshots, changes, maintenance, and
every row compared. With it: ``tests/spark/test_on_gcs.py``, ``test_on_abfss.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command, configured
from tests.fixtures.azure_server import ACCOUNT, AzureServer
from tests.fixtures.gcs_server import GcsServer
from tests.fixtures.servers import Database

pytestmark = [pytest.mark.postgres, pytest.mark.nightly]


def _follow(
    folder: Path, database: Database, path: str, endpoint: str, environment: dict[str, str], *, drops: bool = True
) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, n int, v text)",
        "INSERT INTO item SELECT g, 0, 'v' || g FROM generate_series(1, 500) g",
        "CREATE TABLE line (id int PRIMARY KEY, v text)",
        "INSERT INTO line VALUES (1, 'x')",
    )
    made = configured(
        folder,
        database.dsn,
        database.name,
        ["public.item", "public.line"],
        lake={"path": path, "storage": {"endpoint": endpoint}},
    )
    command = Command(made.configuration, made.environment | environment)
    assert "refuses a second file of one name" in command("doctor", "--verbose").stdout
    _assert_done(command, "sync")
    for number in range(7):  # logs get checkpoints
        database.execute(
            f"UPDATE item SET n = n + 1 WHERE id % 7 = {number}",
            f"INSERT INTO item VALUES ({1000 + number}, 0, 'new')",
            f"DELETE FROM item WHERE id = {number + 1}",
            f"INSERT INTO line VALUES ({number + 2}, 'y')",
        )
        _assert_done(command, "sync")
    _assert_done(command, "verify")
    _assert_done(command, "status")
    _assert_done(command, "cut")
    database.execute("UPDATE item SET n = 0")
    _assert_done(command, "sync")
    _assert_done(command, "snapshot", "--table", "public.item")
    _assert_done(command, "verify")
    if drops:
        _assert_done(command, "drop", "--lake", "--yes")


def _assert_done(command: Command, name: str, *options: str) -> None:
    answer = command(name, *options, without_java=True)
    assert answer.exit_code == 0, (name, answer.stderr)
    assert "defect" not in answer.stderr


def test_google(tmp_path: Path, database: Database, gcs_server: GcsServer) -> None:
    path = f"gs://{gcs_server.bucket}/{database.name}"
    _follow(tmp_path, database, path, gcs_server.endpoint, gcs_server.environment)


@pytest.mark.parametrize("scheme", ["abfss", "az"])
@pytest.mark.parametrize("credentials", ["key", "signature"])
def test_azure(tmp_path: Path, database: Database, azure_server: AzureServer, scheme: str, credentials: str) -> None:
    environment = azure_server.with_key if credentials == "key" else azure_server.with_signature
    if scheme == "az":
        path, environment = (
            f"az://{azure_server.container}/{database.name}",
            environment | {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT},
        )
    else:
        path = f"abfss://{azure_server.container}@{ACCOUNT}.dfs.core.windows.net/{database.name}"
    # Azurite answers 500 to a batch of deletions that has a signature
    _follow(tmp_path, database, path, azure_server.endpoint, environment, drops=credentials == "key")


def test_a_wrong_signature_is_in_no_message(tmp_path: Path, database: Database, azure_server: AzureServer) -> None:
    """Arrow's errors name the URL with the signature in it, which may be the right one and lack a permission."""
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    path = f"az://{azure_server.container}/{database.name}"
    lake = {"path": path, "storage": {"endpoint": azure_server.endpoint}}
    made = configured(tmp_path, database.dsn, database.name, ["public.item"], lake=lake)
    token = azure_server.with_signature["AZURE_STORAGE_SAS_TOKEN"].replace("sig=", "sig=5ecret")
    account = {"AZURE_STORAGE_SAS_TOKEN": token, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT}
    command = Command(made.configuration, made.environment | account)
    for name in ("doctor", "sync", "status", "verify"):
        answer = command(name, "--verbose")
        assert answer.exit_code == 1
        assert "defect" not in answer.stderr
        assert "5ecret" not in answer.stderr + answer.stdout
