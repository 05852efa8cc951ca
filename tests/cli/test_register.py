"""``register`` where there is nothing to register; what it registers is in tests/spark/test_register.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import configured


def test_without_a_template_there_are_no_names(tmp_path: Path) -> None:
    answer = configured(tmp_path, "host=nowhere", "shop", ["public.orders"])("register")
    assert answer.exit_code == 2
    assert answer.problem.endswith("lake.catalog is not set, so tables have no names")
    assert answer.hint == 'below lake: catalog: "shop_{schema}.{table}"'


def test_before_the_first_sync(tmp_path: Path) -> None:
    lake = {"path": str(tmp_path / "lake"), "catalog": "shop_{schema}.{table}"}
    answer = configured(tmp_path, "host=nowhere", "shop", ["public.orders"], lake=lake)("register", without_java=True)
    assert answer.exit_code == 1
    assert answer.problem.startswith("there is no change log at ")
