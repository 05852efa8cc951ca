"""One folder per pipeline, each with its ``defs.yaml``."""

from __future__ import annotations
