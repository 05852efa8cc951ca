"""The demo: a whole trial on one machine."""

from __future__ import annotations
