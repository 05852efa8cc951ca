"""What killed snapshots leave behind is told from a table's files, and from files of others."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.leftovers import files_without_table, remove_files

OURS = "g8/part-00000-128fa7c7-e05c-4bb1-ac93-db9404f8fbfd-c000.snappy.parquet"
OF_A_SNAPSHOT = "snapshot-00000-128fa7c7-e05c-4bb1-ac93-db9404f8fbfd-c000.zstd.parquet"
CHECKSUM = "g8/.part-00000-128fa7c7-e05c-4bb1-ac93-db9404f8fbfd-c000.snappy.parquet.crc"
OF_OTHERS = (
    "part-00000-128fa7c7-e05c-4bb1-ac93-db9404f8fbfd-c000.snappy.parquet",
    "year=2024/orders.parquet",
    "g8/a.csv",
)


def _made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def test_only_files_as_delta_names_them_are_left_over(tmp_path: Path) -> None:
    _made(tmp_path, OURS, OF_A_SNAPSHOT, CHECKSUM, *OF_OTHERS)
    left = files_without_table(Location.of(str(tmp_path)))
    assert set(left) == {str(tmp_path / name) for name in (OURS, OF_A_SNAPSHOT, CHECKSUM)}
    remove_files(Location.of(str(tmp_path)), [*left, str(tmp_path / "gone")])
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()} == set(OF_OTHERS)


def test_a_table_has_no_leftovers_here(tmp_path: Path) -> None:
    _made(tmp_path, OURS, "_delta_log/00000000000000000000.json")
    assert files_without_table(Location.of(str(tmp_path))) == ()
    assert files_without_table(Location.of(str(tmp_path / "missing"))) == ()
