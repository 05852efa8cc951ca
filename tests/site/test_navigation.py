"""Every page is in the navigation of the site, and llms.txt says what the pages say."""

from __future__ import annotations

from tests.site.llms_txt import COMMAND, FILE, text
from tests.site.navigation import ROOT, sections


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [page for section in sections() for page in section.pages]
    beside = {ROOT / "docs" / "index.md"}  # the page that the site begins with
    outside = {ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/shop/README.md")}
    assert sorted(listed) == sorted({*(ROOT / "docs").glob("**/*.md"), *outside} - beside)


def test_llms_txt_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), f"run {COMMAND} to write llms.txt anew"
