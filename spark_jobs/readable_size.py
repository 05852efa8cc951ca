"""Bytes as a person reads them, in the units of the configuration: KiB, MiB, GiB."""

from __future__ import annotations


def size(count: int) -> str:
    """``128 bytes``, ``1.0 KiB``, ``184.5 MiB``."""
    if count < 1024:
        return "1 byte" if count == 1 else f"{count} bytes"
    scaled, units = count / 1024, ["TiB", "GiB", "MiB", "KiB"]
    while scaled >= 1023.95 and len(units) > 1:  # what would be rounded to 1,024.0 is one of the next unit
        scaled /= 1024
        units.pop()
    return f"{scaled:,.1f} {units[-1]}"
