"""What GitHub and pre-commit read of this repository: valid, and it names only what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted((GITHUB / "workflows").iterdir()),
    "vendor.github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").iterdir()),
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE))
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *GITHUB.rglob("*.*"), ROOT / ".pre-commit-config.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_github_understands_it(schema: str) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema])]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_each_target_of_make_that_is_named_is_one() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    commands = re.findall(r"(?:`|^\s*|run: )make ((?:[a-z]+\b ?)+)", text, re.MULTILINE)
    named = {target for command in commands for target in command.split()}
    assert "check" in named
    assert named <= TARGETS


def test_each_workflow_makes_targets_that_there_are() -> None:
    nightly = yaml.safe_load((GITHUB / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
    made = nightly["jobs"]["nightly"]["strategy"]["matrix"]["target"]
    assert {each.split()[0] for each in made} <= TARGETS
    for workflow in (GITHUB / "workflows").iterdir():
        for script in re.findall(r"run: bash (\S+)", workflow.read_text(encoding="utf-8")):
            assert (ROOT / script).is_file()


def test_pre_commit_checks_what_make_check_checks() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    entries = {hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for hook in hooks}
    recipes = "".join(re.findall(r"^(?:check|types):.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE))
    checks = {line.removesuffix(" --check") for line in re.findall(r"@\$\(BIN\)/(.*)", recipes)}
    assert entries == checks
