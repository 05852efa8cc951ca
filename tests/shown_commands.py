"""The commands that a page shows in its ``console`` blocks, and the output below each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# what differs from one run to the next: LSNs, versions, times, sizes
_MASKED = (
    (r"\b[0-9A-F]+/[0-9A-F]+\b", "LSN"),
    (r"\b\d+ +(?=LSN)", "VERSION "),
    (r"\b\d+\.\d s\b", "TIME"),
    (r"\b\d+(\.\d+)? (bytes|[KMG]iB)\b", "SIZE"),
)


@dataclass(frozen=True)
class Shown:
    """A command, and the output below it."""

    command: str
    output: str


def shown_in(page: str) -> Iterator[Shown]:
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield Shown(*entry.split("\n", 1))


def masked(output: str) -> list[str]:
    """Its lines, without the widths of their columns."""
    for pattern, word in _MASKED:
        output = re.sub(pattern, word, output)
    return [" ".join(re.sub(r"-{3,}", "---", line).split()) for line in output.strip().splitlines()]
