"""What each test has of its own: a Dagster instance, a pipeline in it, a Dagster project."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from tests.dagster.pipeline_under_dagster import UnderDagster, under_dagster
from tests.dagster.shop_component import DSN
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _opened(home: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """All runs' events in one database. By default each run has its own: making it takes as long as a small run."""
    events = {
        "module": "dagster._core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(home / "events")},
    }
    return dg.instance_for_test(temp_dir=str(home), overrides={"event_log_storage": events})


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an instance without anything in it: to make its databases takes half a second, to copy them nothing."""
    home = tmp_path_factory.mktemp("dagster-home")
    with _opened(home) as instance:
        instance.get_runs_count()
    return home


@pytest.fixture
def instance(empty_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    home = shutil.copytree(empty_home, tmp_path_factory.mktemp("home"), dirs_exist_ok=True)
    with _opened(home) as instance:
        yield instance


@pytest.fixture
def shop(database: Database, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> UnderDagster:
    """The run that takes the first snapshots is over."""
    shop = under_dagster(database, tmp_path / "lake", instance, spark)
    assert shop.run((shop.tick().run_requests or [])[0]).success
    return shop


@pytest.fixture
def shop_dsn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that the body of ``shop_component`` names."""
    monkeypatch.setenv("SHOP_DSN", DSN)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty Dagster project that uses the installed component."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "mine"\n'
        'code_location_target_module = "mine.definitions"\n'
    )
    (tmp_path / "mine" / "defs").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "defs" / "__init__.py").touch()
    (tmp_path / "mine" / "definitions.py").write_text(
        "import dagster as dg\nfrom pathlib import Path\n\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    return tmp_path


@pytest.fixture
def importable(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(project))
    yield project
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]
