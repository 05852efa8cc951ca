"""Sizes as a person reads them."""

from __future__ import annotations

import pytest

from spark_jobs.readable_size import size


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (193_462_272, "184.5 MiB"),
        (9 << 30, "9.0 GiB"),
        (2048 << 40, "2,048.0 TiB"),
    ],
)
def test_size(count: int, said: str) -> None:
    assert size(count) == said
