"""llms.txt, an index of the pages for language models (https://llmstxt.org), from their titles and first paragraphs.

``python -m tests.site.llms_txt`` writes the file anew; ``test_llms_txt`` compares it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.site.navigation import ROOT, sections

FILE = ROOT / "llms.txt"
COMMAND = "python -m tests.site.llms_txt"

_NOT_PROSE = ("#", "|", "-", "!", "```")
_FENCED = re.compile(r"^```.*?^```\n", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def text() -> str:
    """The whole file."""
    readme = ROOT / "README.md"
    return f"# {title(readme)}\n\n> {first_paragraph(readme)}\n" + "".join(_sections())


def _sections() -> Iterator[str]:
    for section in sections():
        lines = (
            f"- [{title(page)}]({page.relative_to(ROOT).as_posix()}): {first_paragraph(page)}\n"
            for page in section.pages
        )
        yield f"\n## {section.title}\n\n{''.join(lines)}"


def title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def first_paragraph(page: Path) -> str:
    """The first one that is prose, in one line and without links."""
    blocks = _FENCED.sub("", page.read_text(encoding="utf-8")).split("\n\n")
    prose = next(block for block in blocks if block.strip() and not block.lstrip().startswith(_NOT_PROSE))
    return _LINK.sub(r"\1", " ".join(prose.split()))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
