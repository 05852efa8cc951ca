"""The settings of an object store, for each of the clients that open one lake: Arrow, object_store (in ``deltalake``
and ``obstore``) and Hadoop (in Spark). A new setting, or another kind of store, is told here and nowhere else.

Credentials are never among the settings: each client takes them from the environment or from the machine's role.
hadoop-azure looks at neither by itself, so its settings name the variable.
https://docs.rs/object_store/latest/object_store/aws/enum.AmazonS3ConfigKey.html
https://docs.rs/object_store/latest/object_store/gcp/enum.GoogleConfigKey.html
https://docs.rs/object_store/latest/object_store/azure/enum.AzureConfigKey.html
https://hadoop.apache.org/docs/stable/hadoop-aws/tools/hadoop-aws/index.html
https://hadoop.apache.org/docs/stable/hadoop-azure/index.html
https://github.com/GoogleCloudDataproc/hadoop-connectors/blob/v2.2.28/gcs/CONFIGURATION.md
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spark_jobs.errors import LakeError
from spark_jobs.storage import Location, Recent, StoreSettings

if TYPE_CHECKING:
    from obstore.store import ClientConfig
    from obstore.store import ObjectStore as Client
    from pyarrow import fs

# a busy store answers 503 for seconds: object_store asks ten times too
_ATTEMPTS = 10
# by line of Hadoop: see hadoop-project's pom
_AWS_SDK = {"3.4.": "2.29.52", "3.5.": "2.35.4"}
# brings Google's own connector, 2.2.28, whose coordinates Spark does not take, as they have a classifier. Hadoop has
# another one, since 3.5, which cannot be told of an endpoint
GOOGLE_CONNECTOR = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
# Hadoop 3.5 has defaults for its own connector, such as 64m, which are no numbers to Google's
_GCS_SIZES = {
    "fs.gs.block.size": 64 << 20,
    "fs.gs.outputstream.buffer.size": 8 << 20,
    "fs.gs.inputstream.inplace.seek.limit": 8 << 20,
    "fs.gs.inputstream.min.range.request.size": 2 << 20,
}
_AZURE_KEY = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
_AZURE_TOKEN = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")


@dataclass(frozen=True)
class ObjectStore:
    """One kind of store. ``scheme``: by which object_store knows it. ``arrow`` opens a bucket, or the container of an
    account; ``options`` are object_store's for it, ``hadoop`` those of Spark's ``spark.hadoop.`` settings.
    ``connector``: the Maven coordinates of what Spark needs, for a version of Hadoop; ``excludes`` what those would
    bring for nothing. ``takes``: the settings that apply to it. ``log_store``: the class that makes Spark's commits
    conditional, where Delta's own does not. ``spark``: further settings of Spark."""

    scheme: str
    arrow: Callable[[StoreSettings, str], fs.FileSystem]
    hadoop: Callable[[StoreSettings], dict[str, str]]
    connector: Callable[[str], tuple[str, ...]]
    options: Callable[[StoreSettings, str], dict[str, str]]
    excludes: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    log_store: str = ""
    spark: Mapping[str, str] = field(default_factory=dict)


class Filesystems(Recent["fs.FileSystem"]):
    """By the beginning of the path, which is all that a client depends on."""


class _Clients(Recent["Client"]):
    """The same of object_store."""


def store_of(path: str) -> ObjectStore | None:
    """None for a path on a disk. Raises LakeError for a scheme that one of the clients does not know."""
    scheme, separator, _ = path.partition("://")
    if not separator or scheme == "file":
        return None
    if scheme not in _STORES:
        what = f"{path} cannot be opened: {scheme}:// is not supported"
        raise LakeError(what, hint=f"choose a folder, or {', '.join(f'{known}://' for known in (*_STORES, _SHORT))}")
    return _STORES[scheme]


def full_uri(path: str) -> str:
    """``az://`` as all clients understand it: with the storage account, which the environment names. Any other path as
    it is. Raises LakeError if no account is named."""
    scheme, _, rest = path.partition("://")
    container, _, key = rest.partition("/")
    if scheme == _SHORT and (account := _environment("AZURE_STORAGE_ACCOUNT_NAME")):
        return f"abfss://{container}@{account}.dfs.core.windows.net/{key}"
    if scheme == _SHORT or (scheme == "abfss" and not re.fullmatch(r"[^@]+@[^@.]+\.[^@]+", container)):
        what = f"{path} cannot be opened: no storage account is named"
        hint = "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, or set AZURE_STORAGE_ACCOUNT_NAME for az://"
        raise LakeError(what, hint=hint)
    return path


def store_named(name: str) -> ObjectStore:
    """By its ``scheme``. Raises KeyError."""
    return _STORES[name]


def store_names() -> list[str]:
    """Those that ``store_named`` takes, each kind of store once."""
    return list(dict.fromkeys(store.scheme for store in _STORES.values()))


def arrow_filesystem(location: Location) -> tuple[fs.FileSystem, str]:
    """The filesystem of a store, and the path in it: the object's key as it is, percent signs included."""
    store, bucket, key = _parts(location)
    opened = location.storage.memory(Filesystems)
    filesystem = opened.value(f"{store.scheme}://{bucket}", lambda: store.arrow(location.storage.settings, bucket))
    container = bucket.partition("@")[0]
    return filesystem, f"{container}/{key}".rstrip("/")


def object_client(location: Location) -> tuple[Client, str]:
    """object_store's client of the bucket, and how the names in the folder ``location`` begin there."""
    from obstore.store import from_url

    store, bucket, key = _parts(location)
    address = f"{store.scheme}://{bucket}"

    def opened() -> Client:
        options: Any = storage_options(location) or {}
        client: ClientConfig | None = {"allow_http": True} if options.pop("allow_http", None) else None
        return from_url(address, config=options, client_options=client)

    return location.storage.memory(_Clients).value(address, opened), f"{key}/" if key else ""


def storage_options(location: Location) -> dict[str, str] | None:
    """Those of ``deltalake``; None if there are none."""
    if location.local is not None:
        return None
    (store, bucket, _), settings = _parts(location), location.storage.settings
    allowed = {"allow_http": "true"} if settings.is_unencrypted else {}
    return store.options(settings, bucket) | allowed or None


def _parts(location: Location) -> tuple[ObjectStore, str, str]:
    """The store, the bucket, and the key in it."""
    store = store_of(location)
    assert store is not None
    bucket, _, key = location.partition("://")[2].partition("/")
    return store, bucket, key


def spark_settings(location: Location) -> dict[str, str]:
    """Where the store is, for sessions that we start."""
    store = store_of(location)
    if store is None:
        return {}
    hadoop = {f"spark.hadoop.{key}": value for key, value in store.hadoop(location.storage.settings).items()}
    schemes = [scheme for scheme, known in _STORES.items() if known is store and store.log_store]
    return {**hadoop, **{f"spark.delta.logStore.{scheme}.impl": store.log_store for scheme in schemes}}


def _s3(settings: StoreSettings, bucket: str) -> fs.FileSystem:
    from pyarrow import fs

    endpoint = settings.endpoint or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    region = settings.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    url = urlsplit(endpoint or "")
    return fs.S3FileSystem(
        endpoint_override=url.netloc or None,
        scheme=url.scheme or None,
        region=region or ("us-east-1" if endpoint else fs.resolve_s3_region(bucket)),
        force_virtual_addressing=settings.path_style is False,
        # a small file is written in one request; else it would take three
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def _s3_options(settings: StoreSettings, _: str) -> dict[str, str]:
    style = None if settings.path_style is None else str(not settings.path_style).lower()
    return _given(
        aws_endpoint=settings.endpoint,
        aws_region=settings.region,
        aws_virtual_hosted_style_request=style,
    )


def _s3_hadoop(settings: StoreSettings) -> dict[str, str]:
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        # names of new files are never used twice: not to look whether there is such a file or folder saves two requests
        "fs.s3a.performance.flags": "create",
        **_given(
            **{
                "fs.s3a.endpoint": settings.endpoint,
                "fs.s3a.endpoint.region": settings.region,
                "fs.s3a.path.style.access": None if settings.path_style is None else str(settings.path_style).lower(),
                "fs.s3a.connection.ssl.enabled": "false" if settings.is_unencrypted else None,
            }
        ),
    }


def _aws_connector(hadoop: str) -> tuple[str, ...]:
    """Of Amazon's SDK, the version that this Hadoop is built with. Its bundle of everything has 686 MB, these 19."""
    sdk = next((version for line, version in _AWS_SDK.items() if hadoop.startswith(line)), _AWS_SDK["3.5."])
    modules = (f"software.amazon.awssdk:{module}:{sdk}" for module in ("s3", "s3-transfer-manager", "sts"))
    return (f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules)


def _gcs(settings: StoreSettings, _: str) -> fs.FileSystem:
    from pyarrow import fs

    url = urlsplit(settings.endpoint or "")
    return fs.GcsFileSystem(endpoint_override=url.netloc or None, scheme=url.scheme or None)


def _gcs_options(settings: StoreSettings, _: str) -> dict[str, str]:
    return _given(google_base_url=settings.endpoint)


def _gcs_hadoop(settings: StoreSettings) -> dict[str, str]:
    return {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        **{key: str(size) for key, size in _GCS_SIZES.items()},
        **_given(**{"fs.gs.storage.root.url": settings.endpoint}),
    }


def _azure(settings: StoreSettings, bucket: str) -> fs.FileSystem:
    """``bucket``: the container, ``@``, and the host name, which begins with the account's."""
    from pyarrow import fs

    account, domain = bucket.partition("@")[2].split(".", 1)
    url = urlsplit(settings.endpoint or "")
    key = _environment(*_AZURE_KEY)
    token = None if key else _environment(*_AZURE_TOKEN)
    return fs.AzureFileSystem(
        account,
        # as object_store has it; Arrow finds all other credentials by itself
        account_key=key,
        sas_token=token and f"?{token.removeprefix('?')}",
        blob_storage_authority=url.netloc or f".{domain.replace('dfs.', 'blob.', 1)}",
        dfs_storage_authority=url.netloc or f".{domain}",
        blob_storage_scheme=url.scheme or None,
        dfs_storage_scheme=url.scheme or None,
    )


def _azure_options(settings: StoreSettings, bucket: str) -> dict[str, str]:
    """Where an endpoint is given, the account is part of the path of requests, as Arrow has it too."""
    account = bucket.partition("@")[2].partition(".")[0]
    return _given(azure_endpoint=settings.endpoint and f"{settings.endpoint.rstrip('/')}/{account}")


def _azure_hadoop_credentials() -> dict[str, str]:
    """The variable itself, whose value each of Spark's processes then has from its own environment."""
    if key := _variable(*_AZURE_KEY):
        return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": f"${{env.{key}}}"}
    if token := _variable(*_AZURE_TOKEN):
        return {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": f"${{env.{token}}}"}
    return {}


def _azure_hadoop_endpoint(settings: StoreSettings) -> dict[str, str]:
    """That of an emulator: Blob storage without a hierarchical namespace."""
    if settings.endpoint is None:
        return {}
    url = urlsplit(settings.endpoint)
    unencrypted = {  # the class that abfss has by default always encrypts, and so does the default client
        "fs.abfss.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
        "fs.azure.always.use.https": "false",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
    }
    return {
        "fs.azure.abfs.endpoint": f"{url.hostname}:{url.port or (80 if settings.is_unencrypted else 443)}",
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        **(unencrypted if settings.is_unencrypted else {}),
    }


def _given(**settings: str | None) -> dict[str, str]:
    return {key: value for key, value in settings.items() if value is not None}


def _environment(*names: str) -> str | None:
    name = _variable(*names)
    return name and os.environ[name]


def _variable(*names: str) -> str | None:
    return next((name for name in names if os.environ.get(name)), None)


# a file beside each commit, which readers can do without. To rename it there takes eleven requests on S3, and on Azure
# goes through Hadoop's FileContext, whose class for abfss:// knows no connection without TLS
_NO_CHECKSUMS: Mapping[str, str] = {"spark.databricks.delta.writeChecksumFile.enabled": "false"}
_S3 = ObjectStore(
    "s3",
    _s3,
    _s3_hadoop,
    _aws_connector,
    _s3_options,
    excludes=("software.amazon.awssdk:bundle",),
    takes=frozenset({"endpoint", "region", "path_style"}),
    log_store="postgres_cdc.ConditionalLogStore",
    spark=_NO_CHECKSUMS,
)
_GS = ObjectStore(
    "gs",
    _gcs,
    _gcs_hadoop,
    lambda _: (GOOGLE_CONNECTOR,),
    _gcs_options,
    excludes=(  # the other connectors that this module brings
        "org.apache.hadoop:*",
        "software.amazon*:*",
        "org.wildfly*:*",
        "joda-time:*",
        "com.squareup*:*",
        "org.eclipse.jetty:*",
        "org.apache.httpcomponents:*",
        "com.fasterxml.jackson.core:*",
        "com.fasterxml.jackson.dataformat:*",
    ),
    takes=frozenset({"endpoint"}),
)
_ABFSS = ObjectStore(
    "abfss",
    _azure,
    lambda settings: _azure_hadoop_credentials() | _azure_hadoop_endpoint(settings),
    lambda hadoop: (f"org.apache.hadoop:hadoop-azure:{hadoop}",),
    _azure_options,
    takes=frozenset({"endpoint"}),
    spark=_NO_CHECKSUMS,
)
_STORES: Mapping[str, ObjectStore] = {"s3": _S3, "s3a": _S3, "s3n": _S3, "gs": _GS, "abfss": _ABFSS}
_SHORT = "az"
