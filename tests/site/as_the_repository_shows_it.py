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

_UPWARDS = re.compile(r"\]\(((?:\.\./)+)([^)]+)\)")
_INSIDE = re.compile(r"(?<=\]\()docs/(?=[^)]+\))")
_BESIDE = re.compile(r"\]\(([A-Z]+\.md)\)")  # CHANGELOG.md links CONTRIBUTING.md
_CODE = re.compile(r"`[^`\n]+`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs["toc"] = {"slugify": slugify(case="lower"), "permalink": True}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside ``docs/`` that are linked: ``CHANGELOG.md`` and the examples for Dagster."""
    root = Path(config.config_file_path).parent
    linked = {link for page in files.documentation_pages() for link in _linked_outside(page)}
    beside = {name for path in linked if path.endswith(".md") for name in _BESIDE.findall((root / path).read_text())}
    for path in sorted(linked | beside):
        files.append(File.generated(config, path, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    lines = _INSIDE.sub("", _inside_the_site(markdown, _leave_docs(page.file))).split("\n")
    return "\n".join(_plain_bars(line) if line.startswith("|") else line for line in lines)


def _leave_docs(file: File) -> str:
    """The beginning of links from this file to files outside ``docs/``."""
    return "../" * (file.src_uri.count("/") + 1)


def _linked_outside(file: File) -> list[str]:
    links = _UPWARDS.findall(file.content_string)
    return [link.partition("#")[0] for upwards, link in links if upwards == _leave_docs(file)]


def _inside_the_site(markdown: str, leave_docs: str) -> str:
    """What is outside ``docs/`` lies beside its pages in the site."""
    shorter = leave_docs.removeprefix("../")
    return _UPWARDS.sub(lambda link: f"]({shorter}{link[2]})" if link[1] == leave_docs else link[0], markdown)


def _plain_bars(row: str) -> str:
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row)
