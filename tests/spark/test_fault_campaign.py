"""A few runs of ``make faults``: one of each kind of these faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

KINDS = ("capture killed", "driver killed", "server stopped", "spool full")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_faults_of_each_kind_leave_the_lake_equal(jars_folder: Path) -> None:
    chosen = [part for kind in KINDS for part in ("--only", kind)]
    command = [sys.executable, "-m", "tests.fault_campaign", "--runs", str(len(KINDS)), "--seed", "1", *chosen]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"seed 1: {len(KINDS)} runs" in answer.stdout
    assert "struck while at work" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "differences: 0"
