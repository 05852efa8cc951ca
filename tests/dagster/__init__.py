"""The component, its configuration, and Dagster around them."""

from __future__ import annotations
