"""Record the golden files anew: ``python -m tests.golden.record [--unreleased] [THEME …]``, on real servers 14 to 19.

What is expected comes from triggers on the tables, which note each row change in its transaction, in an unlogged table
that no output plugin sees: a rolled back change takes its note along. Commit order is that of
``pg_xact_commit_timestamp``. No decoder of this project has a part in it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres
from spark_jobs.postgres.session_settings import PIN_STATEMENT
from tests.fixtures.server_binaries import OF_DEBIAN, VERSIONS, fetch, server_binaries
from tests.golden.golden_file import (
    ExpectedChange,
    ExpectedRelation,
    Recording,
    Row,
    expected,
    write_expected,
    write_recording,
)
from tests.golden.renumber import renumber
from tests.golden.scenario import THEMES, Read, Scenario, Step, themes

Connection = psycopg.Connection[tuple[object, ...]]

_SETTINGS = {"track_commit_timestamp": "on", "logical_decoding_work_mem": "64kB", "autovacuum": "off"}
_AUDIT = Path(__file__).with_name("audit.sql")
_NOTES = """
SELECT CASE WHEN xid IS NULL THEN NULL ELSE dense_rank() OVER (ORDER BY xid IS NULL, committed) END,
       kind, origin, tab, identity, relation, old, new, prefix, content
FROM (SELECT *, coalesce(pg_xact_commit_timestamp(xid), at) AS committed FROM golden.note) noted
ORDER BY committed, seq
"""


@dataclass(frozen=True)
class Recorded:
    """One theme on one server."""

    version: int
    expected: tuple[ExpectedChange, ...]
    rows: dict[str, tuple[Row, ...]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("themes", nargs="*", help="by default all")
    parser.add_argument(
        "--unreleased", action="store_true", help=f"only PostgreSQL {OF_DEBIAN}, whose files are its own"
    )
    chosen = parser.parse_args(arguments)
    names = chosen.themes or list(themes())
    recordings: dict[str, list[Recorded]] = {name: [] for name in names}
    for version in (OF_DEBIAN,) if chosen.unreleased else VERSIONS:
        fetch(version)
        with _server(version) as server:
            for name in names:
                recordings[name].append(_record(server, version, Scenario.of(name)))
        sys.stderr.write(f"PostgreSQL {version}: {len(names)} themes recorded\n")
    for name, recorded in recordings.items():
        _write(Scenario.of(name), recorded)
    return 0


def _write(scenario: Scenario, recorded: list[Recorded]) -> None:
    """Expected once, unless the unreleased version does something else; each recording once per run of versions that
    sent the same. The unreleased one has files of its own: it may send something else one day."""
    only_unreleased = recorded[0].version == OF_DEBIAN
    for old in (THEMES / scenario.theme).glob(f"*[.-]{OF_DEBIAN}.jsonl" if only_unreleased else "*.jsonl"):
        old.unlink()
    if not only_unreleased:
        write_expected(scenario.theme, None, recorded[0].expected)
    usual = expected(scenario.theme)
    for each in recorded:
        if each.expected != usual:
            if each.version != OF_DEBIAN:
                raise RuntimeError(f"{scenario.theme} does on {each.version} what it does not on {recorded[0].version}")
            write_expected(scenario.theme, each.version, each.expected)
    for read in scenario.reads:
        runs: list[tuple[list[int], tuple[Row, ...]]] = []
        for each in recorded:
            if each.version < read.since:
                continue
            rows = each.rows[read.slug]
            if runs and runs[-1][1] == rows and each.version != OF_DEBIAN:
                runs[-1][0].append(each.version)
            else:
                runs.append(([each.version], rows))
        for versions, rows in runs:
            recording = Recording(scenario.theme, read.plugin, read.two_phase_slot, read.options, tuple(versions), rows)
            write_recording(recording, read.slug)


@contextmanager
def _server(version: int) -> Iterator[PostgresServer]:
    binaries = server_binaries(version)
    if binaries is None:
        raise RuntimeError(f"PostgreSQL {version} is not on this machine")
    with (
        tempfile.TemporaryDirectory(prefix=f"golden-{version}-", ignore_cleanup_errors=True) as folder,
        running_postgres(Path(folder), binaries=binaries, version=version, settings=_SETTINGS) as server,
    ):
        Path(folder).chmod(0o755)
        yield server


def _record(server: PostgresServer, version: int, scenario: Scenario) -> Recorded:
    name = f"golden_{scenario.theme}"
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            recorded = _in_database(server.dsn(name), version, scenario)
        finally:
            admin.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [name])
    with psycopg.connect(server.dsn(name), autocommit=True) as inside:
        for (gid,) in inside.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        ).fetchall():
            inside.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        inside.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))
    return recorded


def _in_database(dsn: str, version: int, scenario: Scenario) -> Recorded:
    reads = [read for read in scenario.reads if read.since <= version]
    with ExitStack() as stack:
        notes = stack.enter_context(_session(dsn))
        notes.execute(_AUDIT.read_bytes())
        sessions = {name: stack.enter_context(_session(dsn)) for name in sorted({s.session for s in _steps(scenario)})}
        _run(sessions, notes, scenario.setup)
        notes.execute("SELECT golden.audit(format('%I.%I', schemaname, tablename)) FROM pg_publication_tables")
        for read in reads:
            notes.execute(
                "SELECT pg_create_logical_replication_slot(%s, %s, false, %s)",
                [read.slug[:63].replace("-", "_").lower(), read.plugin, read.two_phase_slot],
            )
        _run(sessions, notes, scenario.changes)
        rows = {read.slug: renumber(read.plugin, _read(dsn, read)) for read in reads}
        noted: list[tuple[Any, ...]] = notes.execute(_NOTES).fetchall()
        _run(sessions, notes, scenario.after)
    return Recorded(version, tuple(map(_expected, noted)), rows)


@contextmanager
def _session(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(PIN_STATEMENT)
        connection.execute("SET search_path = public")
        yield connection


def _steps(scenario: Scenario) -> list[Step]:
    return [Step("a", ""), *scenario.setup, *scenario.changes, *scenario.after]


def _run(sessions: dict[str, Connection], notes: Connection, steps: list[Step]) -> None:
    for step in steps:
        session = sessions[step.session]
        if step.prefix is None:
            session.execute(step.text.encode())
        else:
            session.execute("SELECT pg_logical_emit_message(false, %s, %s)", [step.prefix, step.text])
            notes.execute("SELECT golden.note_message(NULL, %s, %s)", [step.prefix, step.text])


def _read(dsn: str, read: Read) -> list[Row]:
    slot = read.slug[:63].replace("-", "_").lower()
    options = list(read.options)
    if read.plugin == "pgoutput":
        options.append(("publication_names", "golden"))
    with _session(dsn) as connection:
        connection.execute("SET search_path = ''")
        # a peek with the option two_phase would make the slot two-phase: read a copy; a copy of one is none
        if not read.two_phase_slot:
            connection.execute("SELECT pg_copy_logical_replication_slot(%s, 'copied', true)", [slot])
            slot = "copied"
        rows = connection.execute(
            sql.SQL(
                "SELECT (lsn - '0/0')::bigint, xid::text::bigint, data FROM {}(%s, NULL, NULL, VARIADIC %s)"
            ).format(sql.Identifier(f"pg_logical_slot_peek_{'binary_' * (read.plugin == 'pgoutput')}changes")),
            [slot, [word for option in options for word in option]],
        ).fetchall()
        if slot == "copied":
            connection.execute("SELECT pg_drop_replication_slot('copied')")  # the next one has the same name
    return [
        Row(_int(lsn), _int(xid), data.encode() if isinstance(data, str) else _bytes(data)) for lsn, xid, data in rows
    ]


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _expected(noted: tuple[Any, ...]) -> ExpectedChange:
    transaction, kind, origin, table, identity, relation, *values = noted
    columns = None if identity is None else tuple(identity)
    shape = None if relation is None else ExpectedRelation.of(relation)
    return ExpectedChange(transaction, kind, origin, table, columns, shape, *values)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
