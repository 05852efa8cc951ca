"""The ready-made Dagster code location: wiring, nothing else."""

from __future__ import annotations
