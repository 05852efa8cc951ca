"""The project's ``.env``: its variables are in templates, and none of them is printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.errors import ConfigurationError

VARIABLE = "DSN_OF_ENV_FILE"
FILE = f"""
type: cdc_assets.PostgresCdcComponent
attributes:
  name: shop
  source: {{dsn: "{{{{ env.{VARIABLE} }}}}"}}
  lake: {{path: lake}}
"""


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """As ``dg scaffold`` lays it out."""
    file = tmp_path / "project" / "src" / "defs" / "shop" / "defs.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(FILE)
    (tmp_path / "project" / "pyproject.toml").touch()
    return file


def dsn(file: Path) -> str:
    return load_pipeline(file).source.dsn.get_secret_value()


def test_the_file_at_the_projects_root_is_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project" / ".env").write_text(f"# secrets\nexport {VARIABLE}='host=db password=pw'\n")
    monkeypatch.chdir(file.parent)
    assert dsn(Path("defs.yaml")) == "host=db password=pw"
    assert os.environ[VARIABLE] == "host=db password=pw"  # for Spark and libpq too
    assert "pw" not in "".join(capfd.readouterr())


def test_the_nearest_file_is_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / ".env").write_text(f"{VARIABLE}=host=far\n")
    (file.parent / ".env").write_text(f"{VARIABLE}=host=near\n")
    assert dsn(file) == "host=near"


def test_a_variable_that_is_set_wins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / ".env").write_text(f"{VARIABLE}=host=file\n")
    monkeypatch.setenv(VARIABLE, "host=set")
    assert dsn(file) == "host=set"


def test_no_file_above_the_project_is_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"{VARIABLE}=host=above\n")
    with pytest.raises(ConfigurationError, match=f"environment variable {VARIABLE} is not set"):
        load_pipeline(file)


def test_outside_a_project_only_the_files_own_folder_counts(file: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / "pyproject.toml").unlink()
    (tmp_path / "project" / ".env").write_text(f"{VARIABLE}=host=above\n")
    with pytest.raises(ConfigurationError, match=f"environment variable {VARIABLE} is not set"):
        load_pipeline(file)
    (file.parent / ".env").write_text(f"{VARIABLE}=host=here\n")
    assert dsn(file) == "host=here"


def test_a_file_that_is_not_text_is_said(file: Path) -> None:
    (file.parent / ".env").write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigurationError, match=r"\.env: cannot be read: it is not UTF-8$"):
        load_pipeline(file)
