"""An export that waits for open transactions: whom it names, that it goes on by itself, and that it leaves nothing."""

from __future__ import annotations

import pytest
from psycopg import sql
from pydantic import SecretStr

from spark_jobs.errors import ConnectionLostError, SlotError, SnapshotWaitsError
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.slot import create_slot
from spark_jobs.snapshot.exporter import PATIENT, Exporter, Patience, exported_snapshot
from tests.fixtures.servers import Database
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.postgres

_EXPORTS = "FROM pg_replication_slots WHERE temporary AND slot_name ~ '^pgcdc_' AND database = current_database()"


def test_an_open_transaction_is_waited_for_and_then_named(database: Database) -> None:
    dsn = SecretStr(database.dsn)
    with database.connect() as open_one, open_one.transaction():
        open_one.execute("SELECT pg_current_xact_id()")
        pid = open_one.info.backend_pid
        named = rf"while the transaction of server process {pid} \(idle in transaction\), open for \d+ s, has not ended"
        with pytest.raises(SnapshotWaitsError, match=named), exported_snapshot(dsn, Patience(1)):
            pass
        with (
            connected(dsn, statement_timeout="1s") as control,
            pytest.raises(SlotError, match=rf"the transaction of server process {pid} .* must end first: SELECT"),
        ):
            create_slot(control, database.name, plugin="pgoutput")
    with exported_snapshot(dsn) as (snapshot, _):
        assert snapshot.lsn > 0


def walsenders(database: Database) -> list[tuple[object, ...]]:
    """The slots of exports that are not finished."""
    return database.execute(f"SELECT slot_name::text, active_pid {_EXPORTS}")


def test_an_export_goes_on_while_its_caller_does_other_things(every_database: Database) -> None:
    """Asked twice, begun once: what it waits for ends in between. A prepared transaction is waited for by its name."""
    database = every_database
    database.execute("CREATE TABLE t (id int)")
    gid = f"{database.name}'s"
    with Exporter(SecretStr(database.dsn), Patience(0)) as exporter:
        with database.connect() as session:
            session.execute("BEGIN")
            session.execute("INSERT INTO t VALUES (1)")
            session.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
        with pytest.raises(SnapshotWaitsError) as waits, exporter.exported():
            pass
        assert f'prepared as "{gid}", open for ' in waits.value.what
        literal = f"'{database.name}''s'"
        ways = f": COMMIT PREPARED {literal} or ROLLBACK PREPARED {literal}, in database {database.name}"
        assert waits.value.hint.endswith(ways)
        assert exporter.is_waiting
        (begun,) = walsenders(database)
        database.execute(f"COMMIT PREPARED {literal}")
        exporter.patience = PATIENT
        with exporter.exported() as (snapshot, connection):
            assert snapshot.lsn > 0
            assert connection.execute("SELECT count(*) FROM public.t").fetchall() == [(1,)]
            assert walsenders(database) == []
    assert begun[0]


def test_an_export_that_is_given_up_leaves_nothing_on_the_server(database: Database) -> None:
    """The transaction that it waits for is still open: the server would keep slot and WAL until it ends."""
    with database.connect() as open_one, open_one.transaction():
        open_one.execute("SELECT pg_current_xact_id()")
        with Exporter(SecretStr(database.dsn), Patience(0)) as exporter:
            with pytest.raises(SnapshotWaitsError), exporter.exported():
                pass
            assert len(walsenders(database)) == 1
        wait_until(lambda: not walsenders(database), "no slot is left")


def test_an_export_whose_server_ends_its_session_is_begun_again(database: Database) -> None:
    with Exporter(SecretStr(database.dsn), Patience(0)) as exporter:
        with database.connect() as open_one, open_one.transaction():
            open_one.execute("SELECT pg_current_xact_id()")
            with pytest.raises(SnapshotWaitsError), exporter.exported():
                pass
            database.execute(f"SELECT pg_terminate_backend(active_pid, 30000) {_EXPORTS}")
            wait_until(lambda: not exporter.is_waiting, "the loss is noticed")
            with pytest.raises(ConnectionLostError, match="was lost"), exporter.exported():
                pass
        exporter.patience = PATIENT
        with exporter.exported() as (snapshot, _):
            assert snapshot.lsn > 0
