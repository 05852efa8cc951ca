"""The demo's folder: its configuration, its lake, where its server is, and Dagster's instance."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import yaml

from cdc_assets.demo.shop_schema import TABLES
from spark_jobs.errors import ConfigurationError

DSN_VARIABLE = "POSTGRES_CDC_DEMO_DSN"
FOLDER_VARIABLE = "POSTGRES_CDC_DEMO_FOLDER"  # for Dagster's processes
# holds the path of the server's data, which may have to lie elsewhere: started by root, the server runs as another user
KEPT_SERVER = "server"
_LAKE = "lake"
_DAGSTER_HOME = "dagster_home"


def configuration_of(folder: Path) -> Path:
    return folder / "shop.yaml"


def lake_of(folder: Path) -> Path:
    return folder / _LAKE


def dagster_home_of(folder: Path) -> Path:
    return folder / _DAGSTER_HOME


def is_demo(folder: Path) -> bool:
    """Whether an earlier demo has left something there."""
    return configuration_of(folder).is_file() or (folder / KEPT_SERVER).is_file()


def begin_anew(folder: Path, jars: str) -> Path:
    """Write the configuration, in place of whatever an earlier demo has left: without its server, its lake cannot be
    followed any further. ``jars``: see ``spark.jars``. Returns the configuration file."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_results(folder)
    attributes = {
        "name": "shop",
        "source": {"dsn": "{{ env." + DSN_VARIABLE + " }}"},
        "lake": {"path": str(lake_of(folder).resolve())},
        "windows": {"max_bytes": "2MiB", "max_per_run": 1000},
        "tables": [str(name) for name in TABLES],
        "merge": {"engine": "auto"},
        "spark": {"jars": jars},
    }
    document = {"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}
    file = configuration_of(folder)
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def require_own_folder(folder: Path) -> None:
    """What is deleted there must be an earlier demo's. Raises ConfigurationError."""
    if folder.is_dir() and any(folder.iterdir()) and not is_demo(folder):
        raise ConfigurationError(f"{folder} is not empty", hint="name a new folder with --folder")


def remove(folder: Path) -> None:
    """Everything that a demo has made there; and the folder, if it holds nothing else."""
    _remove_results(folder)
    for file in (configuration_of(folder), folder / KEPT_SERVER):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _remove_results(folder: Path) -> None:
    for earlier in (lake_of(folder), dagster_home_of(folder)):
        shutil.rmtree(earlier, ignore_errors=True)
