"""What is installed from the wheel, beside a user's own packages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_installs_the_two_packages_and_no_example(tmp_path: Path) -> None:
    """The example's name, ``orchestration``, is one that a project may have for itself."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (scripts,) = [archive.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"cdc_assets", "spark_jobs"}
    assert {"cdc_assets/py.typed", "spark_jobs/py.typed"} <= set(names)
    assert {"cdc_assets/demo/dagster.yaml", "cdc_assets/demo/workspace.yaml"} <= set(names)  # of `demo --ui`
    assert "orchestration" not in scripts
