"""The sizes that dry runs and ``init`` show: a table counts with its partitions."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.table_sizes import TableSize, table_sizes, user_tables
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

ROOT, SMALL, LARGE, PLAIN = (QualifiedName("public", name) for name in ("root", "small", "large", "plain"))


def test_a_table_counts_with_its_partitions(database: Database) -> None:
    database.execute(
        "CREATE TABLE root (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE small PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE large PARTITION OF root FOR VALUES FROM (10) TO (10000) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF large DEFAULT",
        "INSERT INTO root SELECT generate_series(0, 9999)",
        "CREATE TABLE plain (id int)",
    )
    with connected(SecretStr(database.dsn)) as connection:
        sizes = table_sizes(connection, [ROOT, SMALL, LARGE, QualifiedName("public", "none")])
        assert sizes.keys() == {ROOT, SMALL, LARGE}
        assert sizes[ROOT].bytes == sizes[SMALL].bytes + sizes[LARGE].bytes > 8 * sizes[SMALL].bytes
        assert (sizes[ROOT].rows, sizes[SMALL].largest_part) == (None, SMALL)
        assert sizes[ROOT].largest_part == QualifiedName("public", "leaf")
        database.execute("ANALYZE small, leaf")
        (plain, root) = user_tables(connection)
        assert plain == TableSize(PLAIN, 0, None, PLAIN, is_foreign=False)
        assert (root.name, root.rows, root.largest_part) == (ROOT, 10_000, sizes[ROOT].largest_part)
