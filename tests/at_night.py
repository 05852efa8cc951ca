"""Parameters of a test that only ``make nightly`` runs: another way to show what those of ``make test`` show."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def at_night(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.nightly)
