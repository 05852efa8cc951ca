"""Build the jar with our LogStore from its source: ``python tools/log_store.py JARS``, with a JDK's ``javac``.

``JARS`` is a folder with Delta's jars. The jar is the same whenever and wherever it is built with one ``javac``, and
names the source that it was built from, which a test compares.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

FOLDER = Path(__file__).parents[1] / "spark_jobs" / "spark" / "log_store"
SOURCE = FOLDER / "ConditionalLogStore.java"
JAR = FOLDER / "postgres-cdc-log-store.jar"


def build(jars: Path) -> None:
    compiled_against = [*jars.glob("*delta-storage-*.jar"), *_hadoop()]
    with tempfile.TemporaryDirectory() as folder:
        class_path = ":".join(map(str, compiled_against))
        command = ["javac", "--release", "17", "-g:none", "-Xlint:all", "-Werror", "-cp", class_path, "-d", folder]
        subprocess.run([*command, str(SOURCE)], check=True)
        with zipfile.ZipFile(JAR, "w") as jar:
            _add(jar, "META-INF/MANIFEST.MF", manifest().encode())
            for file in sorted(Path(folder).rglob("*.class")):
                _add(jar, file.relative_to(folder).as_posix(), file.read_bytes())


def manifest() -> str:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:40]  # a line has 72 bytes at most
    return f"Manifest-Version: 1.0\r\nSource: {SOURCE.name}\r\nSource-SHA-256: {digest}\r\n\r\n"


def _hadoop() -> list[Path]:
    return list((Path(str(pyspark.__file__)).parent / "jars").glob("hadoop-client-api-*.jar"))


def _add(jar: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))  # an entry has a time
    entry.compress_type = zipfile.ZIP_DEFLATED
    jar.writestr(entry, content)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
