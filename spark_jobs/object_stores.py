"""The settings of an object store, for each of the clients that open one lake: Arrow, object_store (in ``deltalake``
and ``obstore``) and Hadoop (in Spark). A new setting, or another kind of store, is told here and nowhere else.

Credentials are never among the settings: each client takes them from the environment or from the machine's role.
https://docs.rs/object_store/latest/object_store/aws/enum.AmazonS3ConfigKey.html
https://hadoop.apache.org/docs/stable/hadoop-aws/tools/hadoop-aws/index.html
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_jobs.errors import LakeError
from spark_jobs.storage import Location, Recent, StoreSettings

if TYPE_CHECKING:
    from pyarrow import fs

# a busy store answers 503 for seconds: object_store asks ten times too
_ATTEMPTS = 10


@dataclass(frozen=True)
class ObjectStore:
    """One kind of store. ``arrow`` opens a bucket, or the container of an account; ``options`` are object_store's,
    ``hadoop`` those of Spark's ``spark.hadoop.`` settings. ``scheme``: by which object_store knows it. ``takes``: the
    settings that apply to it."""

    scheme: str
    arrow: Callable[[StoreSettings, str], fs.FileSystem]
    options: Callable[[StoreSettings], dict[str, str]]
    hadoop: Callable[[StoreSettings], dict[str, str]]
    takes: frozenset[str] = frozenset({"endpoint"})

    def uri(self, location: Location) -> str:
        return f"{self.scheme}://{location.partition('://')[2]}"


class Filesystems(Recent["fs.FileSystem"]):
    """By the beginning of the path, which is all that a client depends on."""


def store_of(path: str) -> ObjectStore | None:
    """None for a path on a disk. Raises LakeError for a scheme that one of the clients does not know."""
    scheme, separator, _ = path.partition("://")
    if not separator or scheme == "file":
        return None
    if scheme not in _STORES:
        what = f"{path} cannot be opened: {scheme}:// is not supported"
        raise LakeError(what, hint=f"choose a folder, or {', '.join(f'{known}://' for known in _STORES)}")
    return _STORES[scheme]


def arrow_filesystem(location: Location, store: ObjectStore) -> tuple[fs.FileSystem, str]:
    """The filesystem, and the path in it: the object's key as it is, percent signs included."""
    bucket, _, key = location.partition("://")[2].partition("/")
    opened = location.storage.memory(Filesystems)
    filesystem = opened.value(f"{store.scheme}://{bucket}", lambda: store.arrow(location.storage.settings, bucket))
    container = bucket.partition("@")[0]
    return filesystem, f"{container}/{key}".rstrip("/")


def storage_options(location: Location) -> dict[str, str] | None:
    """Those of ``deltalake``; None if there are none."""
    store, settings = store_of(location), location.storage.settings
    if store is None:
        return None
    return {**store.options(settings), **({"allow_http": "true"} if settings.is_unencrypted else {})} or None


def hadoop_settings(location: Location) -> dict[str, str]:
    """Spark's settings, for sessions that we start."""
    store = store_of(location)
    settings = store.hadoop(location.storage.settings) if store else {}
    return {f"spark.hadoop.{key}": value for key, value in settings.items()}


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


def _s3_options(settings: StoreSettings) -> dict[str, str]:
    style = None if settings.path_style is None else str(not settings.path_style).lower()
    return _given(
        aws_endpoint=settings.endpoint,
        aws_region=settings.region,
        aws_virtual_hosted_style_request=style,
    )


def _s3_hadoop(settings: StoreSettings) -> dict[str, str]:
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        **_given(
            **{
                "fs.s3a.endpoint": settings.endpoint,
                "fs.s3a.endpoint.region": settings.region,
                "fs.s3a.path.style.access": None if settings.path_style is None else str(settings.path_style).lower(),
                "fs.s3a.connection.ssl.enabled": "false" if settings.is_unencrypted else None,
            }
        ),
    }


def _gcs(settings: StoreSettings, _: str) -> fs.FileSystem:
    from pyarrow import fs

    url = urlsplit(settings.endpoint or "")
    return fs.GcsFileSystem(endpoint_override=url.netloc or None, scheme=url.scheme or None)


def _gcs_options(settings: StoreSettings) -> dict[str, str]:
    return _given(google_base_url=settings.endpoint)


def _gcs_hadoop(settings: StoreSettings) -> dict[str, str]:
    return {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        **_given(**{"fs.gs.storage.root.url": settings.endpoint}),
    }


def _azure(settings: StoreSettings, bucket: str) -> fs.FileSystem:
    """``bucket``: the container, ``@`` and the host name, which begins with the account's."""
    from pyarrow import fs

    url = urlsplit(settings.endpoint or "")
    return fs.AzureFileSystem(
        bucket.partition("@")[2].partition(".")[0],
        # Arrow looks for all other credentials by itself
        account_key=_environment("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"),
        blob_storage_authority=url.netloc or None,
        blob_storage_scheme=url.scheme or None,
        dfs_storage_authority=url.netloc or None,
        dfs_storage_scheme=url.scheme or None,
    )


def _azure_options(settings: StoreSettings) -> dict[str, str]:
    return _given(azure_endpoint=settings.endpoint)


def _given(**settings: str | None) -> dict[str, str]:
    return {key: value for key, value in settings.items() if value is not None}


def _environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


_S3 = ObjectStore("s3", _s3, _s3_options, _s3_hadoop, frozenset({"endpoint", "region", "path_style"}))
_STORES: Mapping[str, ObjectStore] = {
    "s3": _S3,
    "s3a": _S3,
    "s3n": _S3,
    "gs": ObjectStore("gs", _gcs, _gcs_options, _gcs_hadoop),
    "abfss": ObjectStore("abfss", _azure, _azure_options, lambda _: {}),
}
