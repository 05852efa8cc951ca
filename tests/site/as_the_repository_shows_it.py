"""A hook of MkDocs: pages are written for a repository's host, and mean the same in the site.

Files outside ``docs/`` that a page or the navigation names become files of the site. Headings get the addresses that
GitHub gives them, and ``\\|`` in the code of a table is a plain ``|``. https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

_OUTSIDE = re.compile(r"(?<=\]\()\.\./(?=[^)]+\))")
_INSIDE = re.compile(r"(?<=\]\()docs/(?=[^)]+\))")
_BESIDE = re.compile(r"\]\(([A-Z]+\.md)\)")  # CHANGELOG.md links CONTRIBUTING.md
_CODE = re.compile(r"`[^`\n]+`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs["toc"] = {"slugify": slugify(case="lower"), "permalink": True}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside ``docs/`` that are linked: ``CHANGELOG.md`` and the examples for Dagster."""
    root = Path(config.config_file_path).parent
    linked = {link for page in files.documentation_pages() for link in _linked_outside(page.content_string)}
    beside = {name for path in linked if path.endswith(".md") for name in _BESIDE.findall((root / path).read_text())}
    for path in sorted(linked | beside):
        files.append(File.generated(config, path, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    lines = _INSIDE.sub("", _OUTSIDE.sub("", markdown)).split("\n")
    return "\n".join(_plain_bars(line) if line.startswith("|") else line for line in lines)


def _linked_outside(markdown: str) -> list[str]:
    return [link.partition("#")[0] for link in re.findall(r"\]\(\.\./([^)]+)\)", markdown)]


def _plain_bars(row: str) -> str:
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row)
