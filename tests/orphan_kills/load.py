"""What happens meanwhile: small random transactions on a few tables, messages, and somebody who captures them."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from tests.fixtures.servers import Database

_log = logging.getLogger(__name__)

# grown: inserts alone, so that it is appended to; emptied: overwritten after a TRUNCATE; the others: merged
SCHEMA = (
    "CREATE TABLE grown (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE changed (id bigint PRIMARY KEY, v text, n int, doc text)",
    "ALTER TABLE changed ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE emptied (id bigint PRIMARY KEY, v text)",
    "CREATE TABLE moved (part int, line bigint, v text, PRIMARY KEY (part, line))",
    "INSERT INTO grown SELECT g, 'first' FROM generate_series(1, 200) g",
    "INSERT INTO changed SELECT g, 'first', 0, repeat(md5(g::text), 100) FROM generate_series(1, 200) g",
    "INSERT INTO emptied SELECT g, 'first' FROM generate_series(1, 100) g",
    "INSERT INTO moved SELECT g % 10, g, 'first' FROM generate_series(1, 200) g",
)
TABLES = ("public.grown", "public.changed", "public.emptied", "public.moved")
_FIRST_ID, _ROWS = 1_000, 200
_LONGEST_PAUSE = 0.15
_CAPTURE_SECONDS = 0.5


@dataclass
class Load:
    """``messages``: the contents that were committed."""

    database: Database
    pipeline: Pipeline
    rng: random.Random
    messages: list[str] = field(default_factory=list)
    transactions: int = 0
    _next: int = _FIRST_ID
    _stop: threading.Event = field(default_factory=threading.Event)

    def change(self) -> None:
        with self.database.connect() as connection:
            while not self._stop.wait(self.rng.uniform(0, _LONGEST_PAUSE)):
                self._transaction(connection)

    def capture(self) -> None:
        """As cron would. A client that captures too may be quicker."""
        while not self._stop.wait(_CAPTURE_SECONDS):
            try:
                capture(self.pipeline)
            except CdcError as error:
                _log.info("capture: %s", error)

    def stop(self) -> None:
        self._stop.set()

    def _transaction(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        message = None
        rolled_back = self.rng.random() < 0.05
        with connection.transaction(force_rollback=rolled_back):
            for _ in range(self.rng.randrange(1, 4)):
                connection.execute(self._statement())
            if self.rng.random() < 0.3:
                message = f"message {self._next}"
                connection.execute("SELECT pg_logical_emit_message(true, 'outbox', %s)", [message])
        self.transactions += 1
        if message is not None and not rolled_back:
            self.messages.append(message)

    def _statement(self) -> str:
        self._next += 10
        new, old, rng = self._next, self.rng.randrange(1, _ROWS), self.rng
        return rng.choices(
            (
                f"INSERT INTO grown SELECT g, 'later' FROM generate_series({new}, {new + rng.randrange(9)}) g",
                f"INSERT INTO changed SELECT g, 'later' FROM generate_series({new}, {new + rng.randrange(9)}) g",
                f"UPDATE changed SET n = n + 1 WHERE id BETWEEN {old} AND {old + 20}",
                f"DELETE FROM changed WHERE id % 50 = {old % 50} AND id > {_ROWS}",
                f"UPDATE changed SET id = {new + 9} WHERE id = {old}",
                f"INSERT INTO changed VALUES ({old}, 'again', 0, repeat('x', 5000)) ON CONFLICT DO NOTHING",
                f"UPDATE moved SET part = part + 1, v = '{new}' WHERE line BETWEEN {old} AND {old + 9}",
                f"INSERT INTO moved VALUES ({old % 10}, {new}, 'later')",
                f"DELETE FROM moved WHERE line % 40 = {old % 40} AND line > {_ROWS}",
                f"INSERT INTO emptied SELECT g, 'later' FROM generate_series({new}, {new + 9}) g",
                f"UPDATE emptied SET v = '{new}' WHERE id > {new - 200}",
                "TRUNCATE emptied",
                f"DELETE FROM emptied WHERE id % 7 = {old % 7}",
            ),
            (8, 4, 5, 1, 3, 3, 4, 4, 1, 5, 2, 1, 1),
        )[0]


@contextmanager
def load(database: Database, pipeline: Pipeline, seed: int) -> Iterator[Load]:
    """Goes on until the context ends. Raises what stopped it before."""
    running = Load(database, pipeline, random.Random(seed))  # noqa: S311
    with ThreadPoolExecutor(2, thread_name_prefix="load") as pool:
        parts = [pool.submit(running.change), pool.submit(running.capture)]
        try:
            yield running
        finally:
            running.stop()
    for part in parts:
        part.result()
