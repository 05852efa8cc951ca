"""Speed and memory by stage, each as a ratio to the server's own limit measured in the same run: ``make bench``."""

from __future__ import annotations
