"""One setting reaches every client: what the configuration says of a store, and nothing of it in the environment."""

from __future__ import annotations

import pytest

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Lake
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.delta.own_commit import create_table
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.doctor.checks import Verdict
from spark_jobs.doctor.lake_checks import lake_path_check
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import TableCut, latest_cut, write_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.object_stores import full_uri, spark_settings, storage_options
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location, Storage, StoreSettings
from tests.fixtures.object_store import BUCKET, ObjectStore

pytestmark = pytest.mark.slow

NAME = QualifiedName("public", "my table")
FIELD = {"name": "n", "type": "long", "nullable": True, "metadata": {}}


@pytest.fixture
def lake(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    return Lake(f"s3a://{BUCKET}/shop", Storage(StoreSettings(object_store.endpoint, "us-east-1", path_style=True)))


def test_arrow_deltalake_and_obstore_find_the_store(lake: Lake) -> None:
    assert lake_path_check(lake).verdict is Verdict.OK
    log = ChangeLog(lake.change_log)
    log.create()
    assert log.id() is not None
    assert log.checkpoint() is None
    write_cut(lake, 1, Lsn(100), (TableCut(NAME, 16384, "0/64", 3),))
    write_cut(lake, 2, Lsn(200), (TableCut(NAME, 16384, "0/64", 4),))
    cut = latest_cut(Lake(lake.path, Storage(lake.storage.settings)))
    assert cut is not None
    assert cut.lsn == Lsn(200)
    path = lake.table(QualifiedName("public", "orders"))
    assert create_table(path, [FIELD], {}, (), Transaction("a", 1), features=(), user_metadata="{}", rows=0)
    assert not create_table(path, [FIELD], {}, (), Transaction("a", 1), features=(), user_metadata="{}", rows=0), (
        "it is there"
    )
    assert TransactionLog.open(path) is not None


def test_a_name_is_a_key_as_it_is(lake: Lake) -> None:
    """Spark writes a table whose name has a percent sign in its path under just that name."""
    path = lake.table(NAME)
    assert path.endswith("/my%20table")
    filesystem, folder = lake_filesystem(path)
    assert folder == f"{BUCKET}/shop/tables/public/my%20table"
    with filesystem.open_output_stream(f"{folder}/_delta_log/{0:020}.json") as stream:
        stream.write(b'{"txn":{"appId":"a","version":7}}')
    log = TransactionLog.open(path)
    assert log is not None
    assert log.transaction_version("a") == 7


def test_one_client_serves_a_whole_lake(lake: Lake) -> None:
    assert lake_filesystem(lake.change_log)[0] is lake_filesystem(lake.cuts)[0]


def test_what_spark_and_object_store_are_told() -> None:
    settings = StoreSettings("http://minio:9000", "eu-central-1", path_style=True)
    location = Location("s3://bucket/shop", Storage(settings))
    assert spark_settings(location) == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.performance.flags": "create",
        "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.delta.logStore.s3.impl": "postgres_cdc.ConditionalLogStore",
        "spark.delta.logStore.s3a.impl": "postgres_cdc.ConditionalLogStore",
        "spark.delta.logStore.s3n.impl": "postgres_cdc.ConditionalLogStore",
    }
    assert storage_options(location) == {
        "aws_endpoint": "http://minio:9000",
        "aws_region": "eu-central-1",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
    }
    folder = Location("/data/shop", Storage(settings))
    assert (spark_settings(folder), storage_options(folder)) == ({}, None)


@pytest.mark.parametrize(
    ("path", "options", "spark"),
    [
        ("gs://bucket/shop", {"google_base_url": "http://here:1"}, {"fs.gs.storage.root.url": "http://here:1"}),
        (
            "abfss://lakes@acme.dfs.core.windows.net/shop",
            {"azure_endpoint": "http://here:1/acme"},
            {"fs.azure.abfs.endpoint": "here:1"},
        ),
    ],
)
def test_an_endpoint_of_google_or_azure(path: str, options: dict[str, str], spark: dict[str, str]) -> None:
    location = Location(path, Storage(StoreSettings("http://here:1")))
    assert storage_options(location) == options | {"allow_http": "true"}
    assert storage_options(Location.of(path)) is None
    endpoints = {key: value for key, value in spark_settings(location).items() if "here" in value}
    assert endpoints == {f"spark.hadoop.{key}": value for key, value in spark.items()}
    assert not any("endpoint" in key or "root.url" in key for key in spark_settings(Location.of(path)))


def test_spark_takes_azures_credentials_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting names the variable, and never holds its value."""
    location = Location.of("abfss://lakes@acme.dfs.core.windows.net/shop")
    for name in ("ACCOUNT_KEY", "ACCESS_KEY", "SAS_TOKEN", "SAS_KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    assert spark_settings(location) == {}
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "5ecret")
    assert spark_settings(location) == {
        "spark.hadoop.fs.azure.account.auth.type": "SAS",
        "spark.hadoop.fs.azure.sas.fixed.token": "${env.AZURE_STORAGE_SAS_TOKEN}",
    }
    monkeypatch.setenv("AZURE_STORAGE_ACCESS_KEY", "5ecret")  # as without Spark, it wins
    assert spark_settings(location) == {
        "spark.hadoop.fs.azure.account.auth.type": "SharedKey",
        "spark.hadoop.fs.azure.account.key": "${env.AZURE_STORAGE_ACCESS_KEY}",
    }


def test_az_is_short_for_abfss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    for nameless in ("az://lakes/shop", "abfss://lakes/shop", "abfss://lakes@acme/shop"):
        with pytest.raises(LakeError, match="no storage account is named"):
            full_uri(nameless)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acme")
    whole = "abfss://lakes@acme.dfs.core.windows.net/shop"
    assert full_uri("az://lakes/shop") == full_uri(whole) == whole
    assert full_uri("s3://bucket/shop") == "s3://bucket/shop"


@pytest.mark.parametrize("scheme", ["hdfs", "wasbs", "r2"])
def test_other_schemes_are_refused_with_those_there_are(scheme: str) -> None:
    with pytest.raises(LakeError, match="s3://, s3a://, s3n://, gs://, abfss://, az://"):
        lake_filesystem(Location.of(f"{scheme}://bucket/shop"))
