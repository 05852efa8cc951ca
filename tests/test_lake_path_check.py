"""The doctor's look at the lake's path: folders, and what an object store says, here an S3 server in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.configuration import Lake
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.doctor.checks import Verdict
from spark_jobs.doctor.lake_checks import lake_path_check
from spark_jobs.storage import Location
from tests.fixtures.object_store import BUCKET, SECRET_KEY

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("object_store")
@pytest.mark.parametrize("scheme", ["s3a", "s3n", "s3"])
def test_a_bucket_that_can_be_written(scheme: str) -> None:
    path = Location.of(f"{scheme}://{BUCKET}/shop")
    check = lake_path_check(Lake(path))
    assert (check.verdict, check.found) == (Verdict.OK, f"{path} is writable, and refuses a second file of one name")
    filesystem, _ = lake_filesystem(path)
    assert filesystem.get_file_info(f"{BUCKET}/shop").is_file is False, "the probe is gone again"


@pytest.mark.usefixtures("object_store")
def test_a_bucket_that_is_not_there() -> None:
    check = lake_path_check(Lake("s3a://no-such-bucket/shop"))
    assert check.verdict is Verdict.FAIL
    assert "s3a://no-such-bucket/shop cannot be written" in check.found
    assert "bucket does not exist" in check.found
    assert SECRET_KEY not in check.found
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


@pytest.mark.usefixtures("object_store")
def test_a_store_that_ignores_the_condition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As old servers do: they never see it, and the second file of one name replaces the first."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    heard = MotoRequestHandler.make_environ

    def unheard(handler: MotoRequestHandler) -> dict[str, Any]:
        return {name: value for name, value in heard(handler).items() if name != "HTTP_IF_NONE_MATCH"}

    monkeypatch.setattr(MotoRequestHandler, "make_environ", unheard)
    check = lake_path_check(Lake(f"s3a://{BUCKET}/shop"))
    assert check.verdict is Verdict.FAIL
    assert "both would commit" in check.found
    assert "If-None-Match" in check.remedy
