"""TLS as ``source.dsn`` asks for it: in sessions for statements, for replication, for bulk reads, and on executors."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres
from spark_jobs.errors import SourceUnreachableError
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.connection import connected, conninfo
from spark_jobs.postgres.replication import replication_connection
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.range_read import RangeQuery, read_range
from spark_jobs.spark.errors import spark_errors
from spark_jobs.sync import sync
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.server_folders import server_folder
from tests.fixtures.servers import Database, binaries_of, fresh_database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with"),
]

HBA = "hostssl all all all scram-sha-256\nhostnossl all all all reject\n"


@dataclass(frozen=True)
class TlsServer:
    """A server that lets nobody in without TLS; its certificate says localhost, signed by ``right`` and not by
    ``wrong``."""

    server: PostgresServer
    folder: Path

    def dsn(self, authority: str, *, database: str = "postgres", host: str = "localhost") -> SecretStr:
        given = f"host={host} sslmode=verify-full sslrootcert={self.folder / authority}.crt"
        return SecretStr(f"{self.server.dsn(database)} {given}")


@pytest.fixture(scope="module")
def tls() -> Iterator[TlsServer]:
    with server_folder("tls") as folder:
        _certify(folder)
        with running_postgres(folder / "server", binaries=binaries_of(18)) as server:
            _require_tls(server, folder)
            yield TlsServer(server, folder)


def _certify(folder: Path) -> None:
    """Make a server's certificate, of one of two authorities."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    for authority in ("right", "wrong"):
        openssl(
            "req", "-x509", *new, "-keyout", f"{authority}.key", "-out", f"{authority}.crt", "-subj", f"/CN={authority}"
        )
    openssl("req", *new[:3], "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    signed = ("-CA", "right.crt", "-CAkey", "right.key", "-CAcreateserial")
    openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.crt", "-days", "2")


def _require_tls(server: PostgresServer, folder: Path) -> None:
    """The files belong to whoever runs the server."""
    owner = server.data.stat()
    for file in ("server.crt", "server.key"):
        (server.data / file).write_bytes((folder / file).read_bytes())
        (server.data / file).chmod(0o600)
        shutil.chown(server.data / file, owner.st_uid, owner.st_gid)
    (server.data / "pg_hba.conf").write_text(HBA)
    Database(server, "postgres").execute("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()", "SELECT pg_sleep(1)")


def sessions(dsn: SecretStr) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    return {
        "statements": lambda: connected(dsn),
        "replication": lambda: replication_connection(dsn),
        "bulk reads": lambda: bulk_connection(conninfo(dsn)),
    }


def test_each_kind_of_session_accepts_the_right_authority(tls: TlsServer) -> None:
    for kind, opened in sessions(tls.dsn("right")).items():
        with opened() as session:
            assert session, kind
    with (
        pytest.raises(SourceUnreachableError, match=r"rejects connection|no encryption"),
        connected(SecretStr(tls.server.dsn() + " sslmode=disable")),
    ):
        pass


@pytest.mark.parametrize(
    ("authority", "host", "why"),
    [
        ("wrong", "localhost", "SSL error: certificate verify failed"),
        ("right", "127.0.0.1", 'server certificate for "localhost" does not match host name "127.0.0.1"'),
        ("none", "localhost", 'none.crt" does not exist'),
    ],
)
def test_each_kind_refuses_in_one_line_that_says_why(tls: TlsServer, authority: str, host: str, why: str) -> None:
    for kind, opened in sessions(tls.dsn(authority, host=host)).items():
        with pytest.raises(SourceUnreachableError) as refused, opened():
            pass
        said = str(refused.value)
        assert why in said, kind
        assert said.endswith("executors need its files at the same paths"), kind
        assert tls.server.password not in said
        assert len(said) < 500


@pytest.mark.spark
@pytest.mark.usefixtures("read_by_executors")
def test_a_table_is_read_by_executors_and_followed(tls: TlsServer, spark: SparkSession, tmp_path: Path) -> None:
    # the superuser of the fixtures comes over TLS too: libpq's default is to prefer it
    with fresh_database(tls.server) as database:
        database.execute("CREATE TABLE item (id int PRIMARY KEY)", "INSERT INTO item SELECT generate_series(1, 9)")
        dsn = tls.dsn("right", database=database.name).get_secret_value()
        pipeline = pipeline_of(database, tmp_path / "lake", "item", dsn=dsn)
        item = Followed(spark, database, pipeline, (QualifiedName("public", "item"),))
        assert sync(pipeline, lambda: spark).errors == ()
        database.execute("DELETE FROM item WHERE id > 4")
        assert sync(pipeline, lambda: spark).errors == ()
        item.assert_equal()


@pytest.mark.spark
def test_an_executor_refuses_the_wrong_authority(tls: TlsServer, spark: SparkSession) -> None:
    text = conninfo(tls.dsn("wrong"))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from read_range(partial(bulk_connection, text), "none", RangeQuery("t", "SELECT 1", "SELECT 1"))

    with pytest.raises(SourceUnreachableError, match="certificate verify failed") as refused, spark_errors("reading"):
        spark.range(1).mapInArrow(read, "v int").collect()
    assert tls.server.password not in str(refused.value)
