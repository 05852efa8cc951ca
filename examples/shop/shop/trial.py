"""A stage for the example, which your own project does not need: ``shop-trial`` starts a PostgreSQL server with the
tables of a shop, and lets a week of trade pass in it.

The server's clock is turned back by a week at first (by libfaketime), so that there are days to look at. The pipeline
is begun then, as it knows of no day before its first run. At the end the server runs with the right clock.
"""

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import libfaketime
import psycopg

from cdc_assets import lazy_session, load_pipeline, sync
from cdc_assets.demo.demo_server import keep_server, kept_server, remove_server
from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries

ROOT = Path(__file__).parents[1]
PIPELINE = ROOT / "shop" / "defs" / "shop" / "defs.yaml"
ENVIRONMENT = ROOT / ".env"  # read by dg and by postgres-cdc
STATE = ROOT / ".trial"  # Dagster's home, the lake, and where the server is
DAYS = 7
BETWEEN = timedelta(hours=2)

TABLES = """
CREATE TABLE orders (
  id bigint PRIMARY KEY,
  customer text NOT NULL,
  city text NOT NULL,
  status text NOT NULL DEFAULT 'new',
  amount numeric(10,2) NOT NULL,
  placed timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE items (
  order_id bigint REFERENCES orders,
  line integer,
  sku text NOT NULL,
  quantity integer NOT NULL,
  price numeric(10,2) NOT NULL,
  PRIMARY KEY (order_id, line)
);
COMMENT ON TABLE orders IS 'One row per order; its amount is the sum of its items.';
COMMENT ON COLUMN orders.status IS 'new, paid, sent, delivered or cancelled';
ALTER TABLE orders REPLICA IDENTITY FULL;  -- each change has the row before it
"""
CITIES = ("Berlin", "Hamburg", "Köln", "Leipzig", "München")
NEXT = {"new": ("paid", "paid", "cancelled"), "paid": ("sent",), "sent": ("delivered",)}


class Trade:
    """The same orders with the same ``seed``."""

    def __init__(self, connection: psycopg.Connection, seed: int = 1) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        ((self._last,),) = connection.execute("SELECT coalesce(max(id), 0) FROM orders").fetchall()

    def take_orders(self) -> None:
        for _ in range(self._random.randint(3, 12)):
            self._order()

    def go_on(self) -> None:
        """New orders, each with its items in one transaction; some of the others move on, some get one item more."""
        self.take_orders()
        opened = "SELECT id, status FROM orders WHERE status NOT IN ('delivered', 'cancelled') ORDER BY id"
        for order, status in self._connection.execute(opened).fetchall():
            if self._random.random() < 0.2:
                following = self._random.choice(NEXT[status])
                self._connection.execute("UPDATE orders SET status = %s WHERE id = %s", [following, order])
            elif status == "new" and self._random.random() < 0.1:
                with self._connection.transaction():
                    self._item(order, 9)
                    self._add_up(order)

    def _order(self) -> None:
        self._last += 1
        customer = self._random.randint(1, 40)
        values = [self._last, f"customer {customer}", CITIES[customer % len(CITIES)]]
        with self._connection.transaction():
            self._connection.execute("INSERT INTO orders (id, customer, city, amount) VALUES (%s, %s, %s, 0)", values)
            for line in range(1, self._random.randint(2, 4)):
                self._item(self._last, line)
            self._add_up(self._last)

    def _item(self, order: int, line: int) -> None:
        number = self._random.randint(1, 30)
        values = [order, line, f"sku-{number}", self._random.randint(1, 3), number * 5 - 0.05]
        self._connection.execute("INSERT INTO items VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", values)

    def _add_up(self, order: int) -> None:
        self._connection.execute(
            "UPDATE orders SET amount = (SELECT sum(quantity * price) FROM items WHERE order_id = id) WHERE id = %s",
            [order],
        )


@dataclass(frozen=True)
class Clock:
    """A server's, as far from the right one as ``file`` says."""

    file: Path

    def show(self, at: datetime) -> None:
        following = self.file.with_suffix(".next")
        following.write_text(f"{(at - datetime.now(UTC)).total_seconds():+.0f}\n")
        following.replace(self.file)


@contextmanager
def server_in_the_past(folder: Path, at: datetime) -> Iterator[tuple[PostgresServer, Clock]]:
    """A new server whose clock shows ``at``."""
    (library,) = Path(libfaketime.__file__).parent.rglob("libfaketime.so.1")
    copy = Path(shutil.copy(library, folder))  # the server may be another user, who cannot enter this environment
    clock = Clock(folder / "clock")
    clock.show(at)
    environment = {
        "LD_PRELOAD": str(copy),
        "FAKETIME_TIMESTAMP_FILE": str(clock.file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with running_postgres(folder, binaries=binaries(), environment=environment) as server:
        with psycopg.connect(server.dsn()) as connection:
            ((shown,),) = connection.execute("SELECT clock_timestamp()").fetchall()
        if abs(shown - at) > timedelta(minutes=1):
            raise SystemExit("libfaketime does not work on this machine: it is built for Linux on x86-64")
        yield server, clock


def binaries() -> Path:
    folder = wheel_binaries()
    assert folder is not None, "dagster-postgres-cdc[demo] brings an embedded PostgreSQL"
    return folder


def start(say: Callable[[str], None]) -> None:
    stop()
    STATE.mkdir()
    shutil.copy(ROOT / "dagster.yaml.example", STATE / "dagster.yaml")
    folder = Path(tempfile.mkdtemp(prefix="shop-trial-"))
    try:
        port = let_a_week_pass(folder, say)
        with running_postgres(folder, binaries=binaries(), port=port) as server:
            keep_server(STATE, server, running=True)
    except BaseException:
        shutil.rmtree(folder)
        raise
    say(f"PostgreSQL runs until shop-trial stop; {ENVIRONMENT.name} says where. Next: dg dev")


def let_a_week_pass(folder: Path, say: Callable[[str], None]) -> int:
    """In a new server, which is stopped then. Its port, which the pipeline knows."""
    began = datetime.combine(datetime.now(UTC).date() - timedelta(days=DAYS), time(0, 10), UTC)
    say(f"PostgreSQL starts on {began.date()}")
    with server_in_the_past(folder, began) as (server, clock), psycopg.connect(server.dsn(), autocommit=True) as source:
        source.execute(TABLES)
        trade = Trade(source)
        trade.take_orders()
        write_environment(server, began)
        say("the pipeline's first run: publication, slot, snapshots")
        pipeline = load_pipeline(PIPELINE)
        with lazy_session(pipeline.spark) as spark:
            report = sync(pipeline, spark)
        if report.errors:
            raise report.errors[0]
        say("a week of trade")
        while (began := began + BETWEEN) < datetime.now(UTC):
            clock.show(began)
            trade.go_on()
    return server.port


def write_environment(server: PostgresServer, began: datetime) -> None:
    """For this process too."""
    variables = {
        "SHOP_DSN": server.dsn(),
        "SHOP_LAKE": str(STATE / "lake"),
        "SHOP_FIRST_DAY": str(began.date()),
        "DAGSTER_HOME": str(STATE),
    }
    ENVIRONMENT.touch(mode=0o600)
    ENVIRONMENT.write_text("".join(f"{name}='{value}'\n" for name, value in variables.items()))
    os.environ |= variables


def trade(say: Callable[[str], None]) -> None:
    with kept_server(STATE) as server:
        if server is None:
            raise SystemExit("there is no server: shop-trial start")
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            Trade(connection, random.randrange(1_000_000)).go_on()
    say("some orders more")


def stop(say: Callable[[str], None] = lambda _: None) -> None:
    if ENVIRONMENT.exists() and not STATE.exists():
        raise SystemExit(f"{ENVIRONMENT.name} is not the trial's; move it elsewhere first")
    remove_server(STATE)
    shutil.rmtree(STATE, ignore_errors=True)
    ENVIRONMENT.unlink(missing_ok=True)
    say("the server is stopped, and what it had is removed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = {
        "start": (start, "start anew, with a week of trade; the server keeps running"),
        "trade": (trade, "a few transactions more, now"),
        "stop": (stop, "stop the server, and remove it with lake, runs and .env"),
    }
    commands = parser.add_subparsers(required=True)
    for name, (function, text) in does.items():
        commands.add_parser(name, help=text).set_defaults(function=function)
    parser.parse_args().function(lambda line: print(line, flush=True))
