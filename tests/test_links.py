"""Every relative link of the documentation leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md")))
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE = ("https://", "http://", "mailto:")


def _prose(page: Path) -> str:
    """Without blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """The headings' addresses, as GitHub makes them; of equal ones, the later have a number."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ +(.+?) *$", _prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return anchors


def _links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        yield from ((page, link) for link in _LINK.findall(_prose(page)) if not link.startswith(_ELSEWHERE))


LINKS = sorted(set(_links()))


@pytest.mark.parametrize(("page", "link"), LINKS, ids=[f"{page.name}-{link}" for page, link in LINKS])
def test_a_link_leads_somewhere(page: Path, link: str) -> None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.is_relative_to(ROOT)
    assert target.exists()
    if anchor:
        assert anchor in _anchors(target)


def test_every_page_is_linked_from_the_readme() -> None:
    assert {page for page in PAGES if page.parent.name != "decisions"} - _linked_from(ROOT / "README.md") == set()


def test_every_decision_is_linked_from_their_index() -> None:
    index = ROOT / "docs" / "decisions" / "index.md"
    assert index in _linked_from(ROOT / "README.md")
    assert set(index.parent.glob("*.md")) - _linked_from(index) == set()


def _linked_from(linking: Path) -> set[Path]:
    """With ``linking`` itself."""
    links = (link.partition("#")[0] for page, link in LINKS if page == linking)
    return {linking, *((linking.parent / link).resolve() for link in links)}
