"""A shop under accelerated load: one thread changes its tables until it is stopped."""

from __future__ import annotations

import random
import threading
from types import TracebackType

import psycopg

_SECONDS_BETWEEN = 0.02

# weight and statements of each transaction; {n}, {m} are random numbers, {k} counts up
_TRANSACTIONS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (
        30,
        (
            "INSERT INTO shop.orders (id, customer_id, note) VALUES ({k}, {n}, NULL)",
            "INSERT INTO shop.order_lines SELECT {k}, g, 'sku-' || 1 + {m} % 1000, g FROM generate_series(1, 3) g",
        ),
    ),
    (20, ("UPDATE shop.orders SET paid = NOT paid, note = note || '…' WHERE id BETWEEN {n} AND {n} + 5",)),
    (12, ("UPDATE shop.customers SET credit = credit - 0.01, tier = 'gold' WHERE id = {n}",)),
    (8, ("DELETE FROM shop.order_lines WHERE order_id = {n} AND line = 2",)),
    (6, ("DELETE FROM shop.orders WHERE id = {n}", "DELETE FROM shop.order_lines WHERE order_id = {n}")),
    # the body is in TOAST and is not sent again: only the revision changes
    (8, ("UPDATE shop.documents SET revision = revision + 1 WHERE id = 1 + {m} % 300",)),
    (3, ("UPDATE shop.documents SET body = repeat(md5('{k}'), 200 + {m} % 200) WHERE id = 1 + {m} % 300",)),
    # a key change, and two keys that are swapped
    (4, ("UPDATE shop.items SET sku = 'moved-{k}' WHERE sku = 'sku-' || (1 + {m} % 1000)",)),
    (
        3,
        (
            "UPDATE shop.customers SET id = -1 WHERE id = {n}",
            "UPDATE shop.customers SET id = {n} WHERE id = {n} + 1",
            "UPDATE shop.customers SET id = {n} + 1 WHERE id = -1",
        ),
    ),
    (10, ("INSERT INTO shop.visits (day, page) VALUES (date '2025-01-01' + {n} % 365, '/sku-{m}')",)),
    (4, ("UPDATE shop.visits SET page = page || '#' WHERE id = {n}",)),
    (2, ("DELETE FROM shop.visits WHERE id = {n}",)),
    (6, ("INSERT INTO shop.baskets (customer_id, contents) VALUES ({n}, '{{\"k\": {k}}}')",)),
    (
        1,
        (
            "TRUNCATE shop.baskets",
            "INSERT INTO shop.baskets (customer_id) SELECT g FROM generate_series(1, 20) g",
        ),
    ),
)


class ShopLoad:
    """``with ShopLoad(dsn) as load:`` runs it; leaving the block stops it and raises its error, if there was one.

    The same ``seed`` gives the same statements, though not at the same moments.
    """

    def __init__(self, dsn: str, *, seed: int = 1) -> None:
        self.transactions = 0
        self._dsn = dsn
        self._random = random.Random(seed)  # noqa: S311 - not for cryptography
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop-load", daemon=True)
        self._failure: psycopg.Error | None = None

    def __enter__(self) -> ShopLoad:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        weights = [weight for weight, _ in _TRANSACTIONS]
        try:
            with psycopg.connect(self._dsn) as connection:
                while not self._stop.wait(_SECONDS_BETWEEN):
                    ((_, statements),) = self._random.choices(_TRANSACTIONS, weights)
                    self._transact(connection, statements)
        except psycopg.Error as error:
            self._failure = error  # raised by the thread that joins this one

    def _transact(self, connection: psycopg.Connection[tuple[object, ...]], statements: tuple[str, ...]) -> None:
        self.transactions += 1
        numbers = {
            "n": self._random.randint(1, 4999),
            "m": self._random.randint(1, 1_000_000),
            "k": 1_000_000 + self.transactions,
        }
        with connection.transaction():
            for statement in statements:
                connection.execute(statement.format(**numbers))  # numbers only
