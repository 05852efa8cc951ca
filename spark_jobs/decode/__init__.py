"""Decodes change-log rows into columns, and PostgreSQL's text into lake values. Pure functions from Arrow to Arrow."""

from __future__ import annotations
