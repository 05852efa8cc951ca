"""The pages of docs/ build into a site in which every link leads somewhere and nothing comes from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"<(pre|code|script|style)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_LOADED = re.compile(r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//[^>]*>|<link[^>]+href=\"?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    answer = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return folder


def test_every_page_is_there_and_no_markdown_is_left(site: Path) -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).with_suffix(".html") for page in docs.glob("**/*.md")}
    assert pages - {page.relative_to(site) for page in site.glob("**/*.html")} == set()
    for page in site.glob("**/*.html"):
        text = _TAG.sub("", _CODE.sub("", page.read_text(encoding="utf-8")))
        assert re.findall(r"\]\(|```|\*\*|^\|.*|^[-*] .*", text, re.MULTILINE) == [], page.name


def test_what_is_linked_outside_docs_is_there(site: Path) -> None:
    named = re.findall(r'href="(CHANGELOG.html|orchestration/[^"]+)"', (site / "deployment.html").read_text())
    assert set(named) == {"CHANGELOG.html", "orchestration/dagster.yaml"}
    assert all((site / name).exists() for name in named)


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = [
        found[0] for page in site.glob("**/*.html") for found in _LOADED.finditer(page.read_text(encoding="utf-8"))
    ]
    assert loaded == []
