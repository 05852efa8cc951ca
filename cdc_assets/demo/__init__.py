"""The demo: a complete trial on one machine."""

from __future__ import annotations
