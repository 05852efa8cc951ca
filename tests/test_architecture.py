"""The map of the house in docs/architecture.md names every room, and no other; a rule stands in one file. What several
tests share stands in none of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_HOUSES = ("cdc_assets", "spark_jobs")


def _named() -> set[str]:
    """Folders and files that the map names where a line begins; a file's line may name several. Two spaces deeper is
    one room further in."""
    text = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    named: set[str] = set()
    above: list[str] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.match(r"((?:[\w.*]+/?)(?:, [\w.]+\.py|, [\w]+/)*)", line.strip())
        if indent > 4 or names is None:  # a line that goes on with a description
            continue
        above = above[: indent // 2]
        for name in names[1].split(", "):
            named.add("/".join([*above, name.rstrip("/")]))
        above.append(names[1].split(", ")[-1].rstrip("/"))
    return named


def _rooms(house: str) -> set[str]:
    """Its packages. The files beside them may be left out: the map says what they hold in a word."""
    packages = (init.parent for init in (ROOT / house).glob("**/__init__.py"))
    return {str(package.relative_to(ROOT)) for package in packages}


def test_every_room_is_on_the_map() -> None:
    assert {room for house in _HOUSES for room in _rooms(house)} - _named() == set()


def test_nothing_is_on_the_map_that_is_not_there() -> None:
    named = {name for name in _named() if name.startswith(_HOUSES)}
    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert len(named) > 30


@pytest.mark.parametrize(
    ("rule", "pattern", "home"),
    [
        ("opening Delta tables without Spark", r"\bDeltaTable\(", "spark_jobs/delta/table.py"),
        ("opening an object store", r"\b(S3|Gcs|Azure)FileSystem\(|from_uri\(", "spark_jobs/object_stores.py"),
        ("what is retried, how often, how long", r"^from tenacity\b", "spark_jobs/retries.py"),
        ("the hint that names the snapshot command", r"take a new snapshot of", "spark_jobs/errors.py"),
        ("following partitions down", r"(?i)i\.inhparent = ", "spark_jobs/postgres/partition_tree.py"),
        (
            "what a mode keeps",
            r"mode (==|!=|in) [(\"']+(mirror|append|soft_delete|history)",
            "spark_jobs/options/table_mode.py",
        ),
        ("what a plugin means for the configuration", r"plugin (==|!=) [\"']", ""),
    ],
)
def test_a_rule_stands_in_one_file(rule: str, pattern: str, home: str) -> None:
    files = (file for house in _HOUSES for file in (ROOT / house).glob("**/*.py"))
    homes = {str(file.relative_to(ROOT)) for file in files if re.search(pattern, file.read_text(), re.MULTILINE)}
    assert homes == ({home} if home else set()), rule


_MUTABLE = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
_MUTABLE_TYPES = {"dict", "list", "set", "defaultdict", "OrderedDict", "deque", "Lock", "RLock", "Recent", "Storage"}


def _changing_state(module: ast.Module) -> Iterator[str]:
    """Names at module level that hold something that changes, and functions that remember what they returned."""
    yield from (name for node in ast.walk(module) if isinstance(node, ast.Global) for name in node.names)
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(each) for each in node.decorator_list):
            yield node.name
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        value, names = node.value, ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        # a constant is written in capitals, and read only
        is_constant = names.strip("_").isupper() or names == "__all__"
        is_made = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _MUTABLE_TYPES
        if is_made or (isinstance(value, _MUTABLE) and not is_constant):
            yield names


def test_no_module_has_state_that_changes() -> None:
    """What is remembered belongs to a value that somebody has: a lake's storage, a run, a session."""
    files = (file for house in _HOUSES for file in (ROOT / house).glob("**/*.py"))
    found = {str(file.relative_to(ROOT)): list(_changing_state(ast.parse(file.read_text()))) for file in files}
    # one class for each component, as a class is the same only if it is made once
    assert {file: names for file, names in found.items() if names} == {
        "cdc_assets/translation.py": ["attributes_model"]
    }


_DECISIONS = sorted(set((ROOT / "docs" / "decisions").glob("*.md")) - {ROOT / "docs" / "decisions" / "index.md"})
_PARTS = ("Question", "Decision", "Rejected", "Consequences", "Held by")


@pytest.mark.parametrize("page", _DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_a_date_and_says_what_was_rejected(page: Path) -> None:
    head, *parts = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    assert re.fullmatch(r"# .+\n\n- Date: \d{4}-\d\d-\d\d(?:; [\w ]+: \d{4}-\d\d-\d\d)*\n\n", head)
    texts = dict(part.split("\n\n", 1) for part in parts)
    assert tuple(texts) == _PARTS
    assert all(text.strip() for text in texts.values())
    assert "- **" in texts["Rejected"]
    assert re.findall(r"`spark_jobs/[\w/]+\.py`", texts["Held by"])
    assert re.findall(r"`tests/[\w/]+\.py`", texts["Held by"])


@pytest.mark.parametrize(
    "page", [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", *_DECISIONS], ids=lambda page: page.stem
)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    """By their whole path, or from some folder on; of a test, the file has it."""
    files = [path for folder in (*_HOUSES, "tests") for path in (ROOT / folder).glob("**/*.py")]
    for name, test in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", page.read_text()):
        named = [path for path in files if f"/{path.relative_to(ROOT)}".endswith(f"/{name}")]
        assert named, name
        assert not test or any(f"def {test}(" in path.read_text() for path in named), f"{name}::{test}"


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(file: Path) -> Iterator[str]:
    """Modules and, as they may be modules too, the names that are taken from them."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), _module(file.parent))
            yield from (module, *(f"{module}.{alias.name}" for alias in node.names))


def _defined(node: ast.stmt) -> list[str]:
    """The names that it gives the module. What is decorated is called by Click or Dagster, dunder names by Python."""
    if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not node.decorator_list):
        names = [node.name]
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
    else:
        names = []
    return [name for name in names if not name.startswith("__")]


def _read(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def test_the_product_uses_what_it_defines() -> None:
    """What only tests use is theirs. ``logicalrep`` is the specification that they compare the product with."""
    trees = {file: ast.parse(file.read_text()) for house in _HOUSES for file in (ROOT / house).glob("**/*.py")}
    imported = {name for file in trees for name in _imported(file)}
    attributes = {part.attr for tree in trees.values() for part in ast.walk(tree) if isinstance(part, ast.Attribute)}
    unused = {
        f"{_module(file)}.{name}"
        for file, tree in trees.items()
        for node in tree.body
        for name in _defined(node)
        if name not in attributes
        and f"{_module(file)}.{name}" not in imported
        and not any(name in _read(other) for other in tree.body if other is not node)
    }
    assert {name for name in unused if not name.startswith("spark_jobs.logicalrep.")} == set()


def test_no_module_imports_from_a_test_module() -> None:
    tests = {_module(file) for file in (ROOT / "tests").glob("**/test_*.py")}
    files = [file for house in ("tests", "benchmarks") for file in (ROOT / house).glob("**/*.py")]
    assert {f"{_module(file)}: {name}" for file in files for name in _imported(file) if name in tests} == set()
