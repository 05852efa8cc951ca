"""The password that a command prints: for each kind of session, also after the role has another password."""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from spark_jobs.errors import SourceUnreachableError
from spark_jobs.postgres import password_command
from spark_jobs.postgres.bulk_read import bulk_connection, bulk_connections
from spark_jobs.postgres.command_dsn import CommandDsn
from spark_jobs.postgres.connection import connected, conninfo
from spark_jobs.postgres.password_command import PasswordCommand
from spark_jobs.postgres.replication import replication_connection
from tests.cli.command import configured
from tests.cli.following import following
from tests.documented_grants import TABLES, documented_role, without_password
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


@dataclass(frozen=True)
class Rotated:
    """A role whose password changes, and a program that prints it and notes in ``runs`` that it ran. The server asks
    for passwords by SCRAM."""

    database: Database
    folder: Path
    given: str

    @property
    def command(self) -> list[str]:
        program = "import sys; open(sys.argv[2], 'a').write('.'); print(open(sys.argv[1]).read())"
        return [sys.executable, "-c", program, str(self.folder / "password"), str(self.folder / "runs")]

    @property
    def plain_dsn(self) -> str:
        return without_password(self.given)

    def dsn(self, *command: str) -> CommandDsn:
        return CommandDsn(SecretStr(self.plain_dsn), PasswordCommand(command or self.command))

    @property
    def runs(self) -> int:
        log = self.folder / "runs"
        return len(log.read_text()) if log.exists() else 0

    def rotate(self) -> str:
        # what a connection string must escape, and a space at the end
        password = f"canary{uuid.uuid4().hex} '\\%@:/?# "
        role = sql.Identifier(str(conninfo_to_dict(self.given)["user"]))
        self.database.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, sql.Literal(password)).as_string())
        (self.folder / "password").write_text(password)
        return password


@pytest.fixture
def rotated(database: Database, tmp_path: Path) -> Iterator[Rotated]:
    database.execute(*(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in TABLES))
    with documented_role(database, "first") as dsn:
        role = Rotated(database, tmp_path, dsn)
        role.rotate()
        yield role


Kind = Callable[[CommandDsn], AbstractContextManager[object]]
each_kind = pytest.mark.parametrize(
    "session",
    [connected, replication_connection, lambda dsn: bulk_connection(conninfo(dsn))],
    ids=["statements", "replication", "bulk reads"],
)


@each_kind
def test_a_password_is_held_until_it_is_refused(rotated: Rotated, session: Kind) -> None:
    dsn = rotated.dsn()
    for expected in (1, 1):
        with session(dsn):
            assert rotated.runs == expected
    rotated.rotate()
    for expected in (2, 2):
        with session(dsn):
            assert rotated.runs == expected


def test_a_password_is_held_for_some_minutes(rotated: Rotated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_command, "_CACHED_SECONDS", 0)
    dsn = rotated.dsn()
    for expected in (1, 2):
        with connected(dsn):
            assert rotated.runs == expected


def test_sessions_that_are_opened_later(rotated: Rotated) -> None:
    """As in a long snapshot: each thread opens its session when it has something to read."""
    with bulk_connections(conninfo(rotated.dsn())) as connect, connect():
        rotated.rotate()
        with connect() as other:
            assert other


def test_no_password_goes_to_an_executor(rotated: Rotated) -> None:
    text = conninfo(rotated.dsn())
    with bulk_connection(text):
        sent = pickle.dumps(text)
    assert b"canary" not in sent
    with bulk_connection(pickle.loads(sent)):  # noqa: S301 - our own
        assert rotated.runs == 2
    assert "canary" not in repr(text) + str(text)


@each_kind
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; print('canary'); sys.exit('no\\n canary \\x1b[31mred: expired')", "exit code 1: no"),
        ("import sys; print('canary'); sys.exit('canary is \\x1b[31mexpired')", "exit code 1: *** is expired"),
        ("raise SystemExit(3)", "failed with exit code 3: it said nothing"),
        ("pass", "printed no password"),
        ("print('a' + chr(0) + 'canary')", "printed no password"),
        ("print('canary')", "password authentication failed"),
    ],
)
def test_a_command_that_fails_is_one_line(rotated: Rotated, session: Kind, program: str, said: str) -> None:
    with pytest.raises(SourceUnreachableError) as failed, session(rotated.dsn(sys.executable, "-c", program)):
        pass
    assert said in failed.value.what
    assert failed.value.hint
    assert "canary" not in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_command_that_is_not_there(rotated: Rotated) -> None:
    with (
        pytest.raises(SourceUnreachableError, match=r"\(/no/such\) cannot be run: No such file"),
        connected(rotated.dsn("/no/such", "canary")),
    ):
        pass


def test_a_command_that_does_not_end(rotated: Rotated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_command, "_SECONDS", 0.5)
    with (
        pytest.raises(SourceUnreachableError, match=r"has not ended within 0\.5 s"),
        connected(rotated.dsn("sleep", "600")),
    ):
        pass


def test_doctor_and_sync(rotated: Rotated, tmp_path: Path) -> None:
    name = rotated.database.name

    def source(command: list[str]) -> dict[str, object]:
        return {"dsn": rotated.plain_dsn, "password_command": command}

    tables = [f"public.{table}" for table in TABLES]
    works = configured(tmp_path, "", name, tables, source=source(rotated.command))
    doctor = works("doctor", "--json")
    assert {c["what"]: c["verdict"] for c in doctor.document["checks"]}["replication connection"] == "ok"
    assert works("sync").exit_code == 0
    rotated.rotate()
    rotated.database.execute("INSERT INTO orders VALUES (1)")
    assert works("sync").exit_code == 0
    fails = configured(tmp_path, "", name, tables, source=source([sys.executable, "-c", "raise SystemExit('expired')"]))
    for answer in (fails("sync"), fails("capture"), fails("doctor")):
        assert answer.exit_code == 1
        assert "Traceback" not in answer.stderr
    assert fails("sync").problem.endswith("failed with exit code 1: expired")
    said = {check["what"]: check for check in fails("doctor", "--json").document["checks"]}["connection"]
    assert (said["verdict"], "failed with exit code 1" in said["found"]) == ("fail", True)


def test_follow_goes_on_over_a_rotation(rotated: Rotated, tmp_path: Path) -> None:
    source = {"dsn": rotated.plain_dsn, "password_command": rotated.command}
    command = configured(tmp_path, "", rotated.database.name, ["public.orders"], source=source)
    with following(command, "--json", "--every", "1s") as process:
        process.wait_for(lambda done: done["snapshots"])
        before = rotated.runs
        rotated.rotate()
        # no session outlives the password
        rotated.database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            "INSERT INTO orders VALUES (1)",
        )
        process.wait_for(lambda done: "public.orders" in done["applied"])
        assert rotated.runs > before
