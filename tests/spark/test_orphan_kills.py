"""A few kills of ``make kills``, in processes of their own: the session of this one is no client of a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_clients_that_are_killed_while_the_server_writes_for_them(jars_folder: Path) -> None:
    pytest.importorskip("grpc")
    command = [sys.executable, "-m", "tests.orphan_kills", "--kills", "4", "--seed", "1"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "seed 1: 4 kills" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "differences: 0"
