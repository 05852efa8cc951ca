"""Change-log rows → columns, and PostgreSQL's text → lake values. Pure functions from Arrow to Arrow."""

from __future__ import annotations
