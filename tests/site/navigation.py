"""The navigation of the site, as mkdocs.yml has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Section:
    """``pages``: files of the repository, in order."""

    title: str
    pages: tuple[Path, ...]


def sections() -> Iterator[Section]:
    """Those with pages: the first entry is the page that the site begins with."""
    (_, *entries) = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    for entry in entries:
        for title, pages in entry.items():
            yield Section(title, tuple(_files(pages)))


def _files(pages: Iterable[Mapping[str, Any]]) -> Iterator[Path]:
    """Of a list, those of the lists in it too."""
    for page in pages:
        for name in page.values():
            yield from [_file(name)] if isinstance(name, str) else _files(name)


def _file(name: str) -> Path:
    """A page of docs/, else one that stands at the root, such as the changelog."""
    page = ROOT / "docs" / name
    return page if page.exists() else ROOT / name
