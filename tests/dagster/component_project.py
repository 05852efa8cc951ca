"""A Dagster project with components of ours, and ``dg`` in it: see the fixtures ``project`` and ``importable``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from tests.dagster.shop_component import keys_and_deps


def write_defs(project: Path, contents: dict[str, Any], name: str = "shop") -> None:
    folder = project / "mine" / "defs" / name
    folder.mkdir(exist_ok=True)
    (folder / "defs.yaml").write_text(yaml.safe_dump(contents, sort_keys=False))


def dg_command(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("dg")), *arguments],
        cwd=project,
        env={**os.environ, "DAGSTER_HOME": str(project), "PYTHONPATH": str(project), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def in_one_location(project: Path, *bodies: dict[str, Any]) -> dict[str, set[str]]:
    """The assets, and what each depends on, of a code location with these pipelines."""
    for contents in bodies:
        write_defs(project, contents, contents["attributes"]["name"])
    defs = dg.load_from_defs_folder(path_within_project=project / "mine")
    dg.Definitions.validate_loadable(defs)
    return keys_and_deps(defs)
