"""The doctor's look at the lake's path: folders, and what an object store says, here an S3 server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.doctor.checks import Verdict
from spark_jobs.doctor.lake_checks import lake_path_check

pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a bucket that the environment leads to."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    # like the code under test: only a URI's filesystem asks the environment for its endpoint
    filesystem, made = fs.FileSystem.from_uri("s3://lake-bucket?allow_bucket_creation=true")
    filesystem.create_dir(made)
    yield "lake-bucket"
    server.stop()


@pytest.mark.parametrize("scheme", ["s3a", "s3n", "s3"])
def test_a_bucket_that_can_be_written(bucket: str, scheme: str) -> None:
    path = f"{scheme}://{bucket}/shop"
    check = lake_path_check(Lake(path))
    assert (check.verdict, check.found) == (Verdict.OK, f"{path} is writable")
    filesystem, _ = lake_filesystem(path)
    assert filesystem.get_file_info(f"{bucket}/shop").is_file is False, "the probe is gone again"


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    check = lake_path_check(Lake("s3a://no-such-bucket/shop"))
    assert check.verdict is Verdict.FAIL
    assert "s3a://no-such-bucket/shop cannot be written" in check.found
    assert "bucket does not exist" in check.found
    assert "s3cret" not in check.found
    assert check.remedy == "check the bucket and the credentials in the environment"


def test_a_scheme_that_nothing_here_opens() -> None:
    check = lake_path_check(Lake("weird://host/shop"))
    assert check.verdict is Verdict.FAIL
    assert check.found.startswith("weird://host/shop cannot be opened: ")
    assert "s3a://" in check.remedy


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_folders(tmp_path: Path, prefix: str) -> None:
    made = lake_path_check(Lake(f"{prefix}{tmp_path}/lake"))
    assert (made.verdict, made.found) == (Verdict.OK, f"{tmp_path}/lake will be created")
    (tmp_path / "lake").write_text("a file")
    stands = lake_path_check(Lake(f"{prefix}{tmp_path}/lake"))
    assert (stands.verdict, stands.found) == (Verdict.FAIL, f"{tmp_path}/lake is not a folder")
